// What all views share: preact, hooks around the gateway, and components.

import {
  Component, html, render, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState,
} from './vendor/htm-preact-3.1.1.js';
import { gateway } from './client.js';

export { Component, gateway, html, render };
export { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState };

const TOGETHER_MS = 100;

/** Render again whenever the state of the connection changes. */
export function useGateway() {
  const [, update] = useState(0);
  // At once, and not after painting: a change in between would be missed.
  useLayoutEffect(() => gateway.watch(() => update((count) => count + 1)), []);
  return gateway;
}

/**
 * The answer of a method. It is asked for again when the parameters change, after a reconnect, when
 * one of `events` happens, of which several in a row are taken together, and by `reload`. A null method
 * asks for nothing.
 * @param {string | null} method @param {object} [params] @param {string[]} [events]
 * @returns {{data: any, error: Error | null, reload: () => Promise<void>}}
 */
export function useCall(method, params = {}, events = []) {
  const [found, setFound] = useState({ data: null, error: null });
  const wanted = method && JSON.stringify([method, params]);
  const latest = useRef(wanted);
  latest.current = wanted;
  const reload = useCallback(async () => {
    if (!method || gateway.state !== 'ready') return;
    try {
      const data = await gateway.call(method, params);
      if (latest.current === wanted) setFound({ data, error: null });
    } catch (error) {
      if (latest.current === wanted && error.code !== 'OFFLINE') setFound({ data: null, error });
    }
  }, [wanted]);
  useEffect(() => {
    let timer = 0;
    const soon = () => { timer ||= setTimeout(() => { timer = 0; reload(); }, TOGETHER_MS); };
    reload();
    const ends = [gateway.watch(reload), ...events.map((event) => gateway.on(event, soon))];
    return () => { clearTimeout(timer); ends.forEach((end) => end()); };
  }, [reload]);
  return { ...found, reload };
}

/** Sheets that were asked for. @type {Map<string, Promise<void>>} */
const sheets = new Map();

const SETTLE_MS = 500;
/** The questions on the page, by what sets whether they have settled. @type {Set<(isSettled: boolean) => void>} */
const questions = new Set();
let settling = 0;

/** A question appears or goes away, which moves the others. */
function unsettle() {
  questions.forEach((set) => set(false));
  clearTimeout(settling);
  settling = setTimeout(() => questions.forEach((set) => set(true)), SETTLE_MS);
}

/**
 * Whether all questions on the page have been in place for a while. Until then, a click could be meant for
 * what was there before, such as the second click of a double click.
 */
export function useSettled() {
  const [isSettled, setSettled] = useState(false);
  useLayoutEffect(() => {
    questions.add(setSettled);
    unsettle();
    return () => { questions.delete(setSettled); unsettle(); };
  }, []);
  return isSettled;
}

/** Have a style sheet, loaded on first use. @param {string} href */
export function loadStyle(href) {
  const load = () => new Promise((onload, reject) => {
    const onerror = () => { sheets.delete(href); reject(new Error(`${href} could not be loaded.`)); };
    document.head.append(Object.assign(document.createElement('link'), { rel: 'stylesheet', href, onload, onerror }));
  });
  if (!sheets.has(href)) sheets.set(href, load());
  return sheets.get(href);
}

/** Tell screen readers something. @param {string} text */
export function announce(text) {
  const live = document.getElementById('live');
  if (live) live.textContent = text;
}

// Controls, spaces other than the usual one, what joins, hides or reorders, and unassigned tags.
const HIDDEN = new RegExp(
  '[\\u0000-\\u0009\\u000b-\\u001f\\u007f-\\u00a0\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5'
  + '\\u180b-\\u180f\\u2000-\\u200f\\u2028-\\u202f\\u205f-\\u206f\\u3000\\u3164\\ufe00-\\ufe0f\\ufeff'
  + '\\uffa0\\ufff0-\\uffff\\u{e0000}-\\u{e0fff}]',
  'gu',
);

/** The name of a character, such as U+202E. @param {string} character */
const codeOf = (character) => `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}`;

/** Text in one line, with codes for characters that are invisible or reorder others. @param {string} text */
export const oneLine = (text) => text.replace(/\s+/g, ' ').replace(HIDDEN, codeOf);

/** The same for text to decide about, as written. @param {{text: string}} props */
export function Exact({ text }) {
  const parts = [];
  let end = 0;
  for (const found of text.matchAll(HIDDEN)) {
    parts.push(text.slice(end, found.index), html`<mark title="hidden character">${codeOf(found[0])}</mark>`);
    end = found.index + found[0].length;
  }
  return html`<pre class="exact" dir="ltr" tabindex="0">${parts}${text.slice(end)}</pre>`;
}

/** The top of a view: its title, and what can be done. @param {any} props */
export function Bar({ title, children }) {
  useEffect(() => { document.title = `${title} · clawkit`; }, [title]);
  return html`
    <header class="bar"><h1 dir="auto" title=${title}>${title}</h1><div class="row">${children}</div></header>`;
}

/** The frame of a view. @param {any} props */
export function View({ title, actions, children, wide }) {
  return html`
    <${Bar} title=${title}>${actions}<//>
    <div class=${`content ${wide ? 'wide' : ''}`}>${children}</div>`;
}

/** A button that is busy until its action has ended, and shows why it failed. @param {any} props */
export function Button({ onClick, kind = '', label, children, disabled, ...more }) {
  const [state, setState] = useState({ busy: false, error: '' });
  const shown = useRef(true);
  useEffect(() => () => { shown.current = false; }, []);
  const click = async (event) => {
    setState({ busy: true, error: '' });
    let error = '';
    try {
      await onClick?.(event);
    } catch (problem) {
      error = problem.message;
      announce(error);
    }
    if (shown.current) setState({ busy: false, error });
  };
  return html`
    <button type="button" class=${kind} aria-label=${label} title=${label} onClick=${click}
      disabled=${disabled || state.busy} aria-busy=${state.busy} ...${more}>${children}</button>
    ${state.error && html`<span class="bad" role="alert">${state.error}</span>`}`;
}

let fields = 0;

/** A label with its input; `as` is `input`, `textarea` or `select`. @param {any} props */
export function Field({ label, hint, as = 'input', onInput, children, hideLabel, ...more }) {
  const id = useMemo(() => `field-${++fields}`, []);
  const input = (event) => onInput?.(event.target.value);
  return html`
    <div class="field">
      <label for=${id} class=${hideLabel ? 'unseen' : ''}>${label}</label>
      <${as} id=${id} onInput=${input} aria-describedby=${hint ? `${id}-hint` : null} ...${more}>${children}<//>
      ${hint && html`<small id="${id}-hint">${hint}</small>`}
    </div>`;
}

/** A field to choose in; `options` are pairs of a value and its text. @param {any} props */
export function Select({ options, value, ...more }) {
  return html`<${Field} as="select" value=${value} ...${more}>${options.map(([key, shown]) => html`
    <option key=${key} value=${key}>${shown}</option>`)}<//>`;
}

/** @param {{error?: Error | null, kind?: string, children?: any}} props */
export function Notice({ error, kind = error ? 'bad' : '', children }) {
  if (!error && !children) return null;
  return html`<div class="notice ${kind}" role=${error ? 'alert' : 'note'}>${error?.message}${children}</div>`;
}

/** What a list shows while it loads, or if it is empty. @param {any} props */
export function Empty({ data, children }) {
  return html`<p class="empty">${data === null ? 'Loading…' : children}</p>`;
}

/** A line drawing of 24 by 24. @param {{d: string}} props */
export const Icon = ({ d }) => html`<svg class="lines" viewBox="0 0 24 24" aria-hidden="true"><path d=${d} /></svg>`;

/** @param {{kind?: string, children?: any}} props */
export const Badge = ({ kind = '', children }) => html`<span class="badge ${kind}">${children}</span>`;

// These take long to make.
const RELATIVE = new Intl.RelativeTimeFormat('en', { numeric: 'auto', style: 'short' });
const DATE = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' });
const COMPACT = new Intl.NumberFormat('en', { notation: 'compact' });
const TICK_MS = 15_000;
const HOUR_MS = 3_600_000;
const STEPS = [['second', 60], ['minute', 60], ['hour', 24], ['day', 30], ['month', 12], ['year', 1e9]];

/** A time, relative to now. @param {{at: number}} props */
export function Time({ at }) {
  const [now, setNow] = useState(Date.now);
  const isNear = Math.abs(at - now) < HOUR_MS;
  useEffect(() => {
    if (!isNear) return undefined;
    const timer = setInterval(() => setNow(Date.now()), TICK_MS);
    return () => clearInterval(timer);
  }, [isNear]);
  if (!at || !(Math.abs(at) < 8.64e15)) return null;
  let value = (at - now) / 1000;
  let unit = 'second';
  for (const [name, size] of STEPS) {
    unit = name;
    if (Math.abs(value) < size) break;
    value /= size;
  }
  return html`<time datetime=${new Date(at).toISOString()} title=${DATE.format(at)}>
    ${RELATIVE.format(Math.round(value), unit)}</time>`;
}

/** @param {number} count */
export const compact = (count) => COMPACT.format(count);

/** @param {number} dollars */
export const money = (dollars) => (dollars < 0.005 && dollars > 0 ? '< $0.01' : `$${dollars.toFixed(2)}`);

/**
 * A dialog; `onClose` is called when it is closed in any way. @param {any} props */
export function Dialog({ title, onClose, children }) {
  const ref = useRef(null);
  useEffect(() => { ref.current.showModal(); }, []);
  return html`
    <dialog ref=${ref} onClose=${onClose} aria-label=${title}>
      <header class="bar"><h2>${title}</h2>
        <${Button} label="Close" kind="icon" onClick=${() => ref.current.close()}>✕<//></header>
      ${children}
    </dialog>`;
}

/** A button that asks first. @param {any} props */
export function Confirm({ question, action, onClick, children, ...more }) {
  const [asking, setAsking] = useState(false);
  const close = () => setAsking(false);
  const act = async () => {
    await onClick();
    close();
  };
  return html`
    <${Button} onClick=${() => setAsking(true)} ...${more}>${children}<//>
    ${asking && html`<${Dialog} title=${question} onClose=${close}>
      <div class="row end"><${Button} onClick=${close}>Cancel<//>
        <${Button} kind="danger" autofocus onClick=${act}>${action}<//></div><//>`}`;
}

/** @param {{lines: string[]}} props */
export function Diff({ lines }) {
  const kinds = { '+': 'added', '-': 'removed', '@': 'place' };
  return html`<pre class="diff" tabindex="0" aria-label="Changes">${lines.map((line) => html`
    <span class=${kinds[line[0]] ?? ''}>${`${line}\n`}</span>`)}</pre>`;
}

/** Go to a view. @param {string[]} path */
export const link = (...path) => `#/${path.map(encodeURIComponent).join('/')}`;

/** Start a session, and show it. */
export async function createChat() {
  location.hash = link('chat', (await gateway.call('sessions.create', {})).key);
}
