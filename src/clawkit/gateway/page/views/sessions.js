// Sessions: all conversations as a tree with their sub-agents.

import {
  Badge, Button, compact, Confirm, createChat, Dialog, Empty, Field, gateway, html, link, money, Notice, oneLine, Time,
  useEffect, useEvent, useRef, useState, View,
} from '../parts.js';

const PAGE = 100;
const TYPING_MS = 200;

/** The rows that match, kept up to date by events. */
function useSessions(/** @type {string} */ search) {
  const [found, setFound] = useState({ rows: null, hasMore: false, error: null });
  const count = useRef(0);
  const load = async (offset = 0) => {
    const asked = ++count.current;
    try {
      const page = await gateway.call('sessions.list', { limit: PAGE, offset, search });
      if (asked !== count.current) return;
      setFound((old) => ({ rows: merge(offset ? old.rows : [], page.sessions), hasMore: page.hasMore, error: null }));
    } catch (error) {
      if (asked === count.current && error.code !== 'OFFLINE') setFound({ rows: [], hasMore: false, error });
    }
  };
  useEffect(() => {
    const timer = setTimeout(load, TYPING_MS);
    const end = gateway.watch(() => gateway.state === 'ready' && load());
    return () => { clearTimeout(timer); end(); };
  }, [search]);
  useEvent('sessions.changed', ({ reason, session }) => {
    setFound((old) => {
      if (!old.rows) return old;
      if (reason === 'delete') return { ...old, rows: old.rows.filter((row) => row.key !== session.key) };
      const isKnown = old.rows.some((row) => row.key === session.key);
      return isKnown || !search ? { ...old, rows: merge(old.rows, [session]) } : old;
    });
  });
  return { ...found, more: () => load(found.rows.length) };
}

/** Rows with newer versions of themselves, the latest first. */
function merge(/** @type {any[]} */ rows, /** @type {any[]} */ newer) {
  const byKey = new Map([...rows, ...newer].map((row) => [row.key, row]));
  return [...byKey.values()].sort((a, b) => b.updatedAt - a.updatedAt);
}

/** Each session below the one that started it, if that is shown. */
function toTree(/** @type {any[]} */ rows) {
  const keys = new Set(rows.map((row) => row.key));
  const below = new Map();
  for (const row of rows) {
    const parent = keys.has(row.spawnedBy) && row.spawnedBy !== row.key ? row.spawnedBy : '';
    below.set(parent, [...(below.get(parent) ?? []), row]);
  }
  return below;
}

export default function Sessions() {
  const [search, setSearch] = useState('');
  const { rows, hasMore, error, more } = useSessions(search);
  return html`
    <${View} title="Sessions" actions=${html`<${Button} kind="primary" onClick=${createChat}>New chat<//>`}>
      <${Field} label="Search names and keys" type="search" value=${search} onInput=${setSearch} />
      <${Notice} error=${error} />
      ${rows?.length ? html`<${Branch} below=${toTree(rows)} parent="" />`
        : html`<${Empty} data=${rows}>${search ? 'No session matches.' : 'There are no sessions yet.'}<//>`}
      ${hasMore && html`<p class="row"><${Button} onClick=${more}>Show more<//></p>`}
    <//>`;
}

function Branch({ below, parent }) {
  return html`
    <ul class="tree">${below.get(parent).map((row) => html`
      <li key=${row.key}><${Row} row=${row} />
        ${below.has(row.key) && html`<${Branch} below=${below} parent=${row.key} />`}</li>`)}</ul>`;
}

function Row({ row }) {
  const [isNaming, setNaming] = useState(false);
  const name = oneLine(row.displayName || row.key);
  const tokens = row.inputTokens + row.outputTokens;
  const remove = () => gateway.call('sessions.delete', { key: row.key });
  const reset = () => gateway.call('sessions.reset', { key: row.key });
  return html`
    <div class="card session">
      <div class="grow">
        <a href=${link('chat', row.key)}><strong>${name}</strong></a>
        ${row.hasActiveRun && html` <${Badge} kind="warn">running<//>`}
        <div class="hint">${row.key} · ${row.modelProvider}/${row.model} · ${compact(tokens)} tokens
          · ${money(row.estimatedCostUsd)} · <${Time} at=${row.updatedAt} /></div>
      </div>
      <div class="row">
        <${Button} kind="plain" label="Rename ${name}" onClick=${() => setNaming(true)}>Rename<//>
        ${gateway.may('admin') && html`
          <${Confirm} kind="plain" label="Reset ${name}" question="Start ${name} anew?" action="Reset"
            onClick=${reset}>Reset<//>
          ${!row.isMain && html`
            <${Confirm} kind="plain" label="Delete ${name}" question="Delete ${name} and all that was said in it?"
              action="Delete" onClick=${remove}>Delete<//>`}`}
      </div>
      ${isNaming && html`<${Rename} row=${row} onClose=${() => setNaming(false)} />`}
    </div>`;
}

function Rename({ row, onClose }) {
  const [label, setLabel] = useState(row.label ?? '');
  const save = async () => {
    await gateway.call('sessions.patch', { key: row.key, label: label.trim() || null });
    onClose();
  };
  return html`
    <${Dialog} title="Rename" onClose=${onClose}>
      <${Field} label="Name" value=${label} onInput=${setLabel} maxlength="120" autofocus
        hint="Empty: named after its first message." />
      <p class="row end"><${Button} kind="primary" onClick=${save}>Save<//></p>
    <//>`;
}
