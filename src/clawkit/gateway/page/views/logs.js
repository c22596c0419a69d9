// @ts-check
// Logs: the lines of the gateway as they come, by level and text.

import {
  Badge, Button, Empty, Field, gateway, html, Notice, Select, useEffect, useRef, useState, View,
} from '../parts.js';

const POLL_MS = 1_500;
const KEEP = 2_000;
const LEVELS = ['debug', 'info', 'warning', 'error'];
const KINDS = { warning: 'warn', error: 'bad', critical: 'bad' };

export default function Logs() {
  const [wanted, setWanted] = useState({ level: 'info', text: '' });
  const [paused, setPaused] = useState(false);
  const { lines, file, error } = useLog(wanted, paused);
  const end = useRef(null);
  useEffect(() => { if (!paused) end.current?.scrollIntoView({ block: 'end' }); }, [lines]);
  return html`
    <${View} title="Logs" wide actions=${html`
        <${Button} aria-pressed=${paused} onClick=${() => setPaused(!paused)}>${paused ? 'Continue' : 'Pause'}<//>`}>
      <div class="picks">
        <${Select} label="From level" options=${LEVELS.map((each) => [each, each])} value=${wanted.level}
          onInput=${(level) => setWanted({ ...wanted, level })} />
        <${Field} label="With text" type="search" onInput=${(text) => setWanted({ ...wanted, text })} />
      </div>
      <${Notice} error=${error} />
      ${file && html`<p class="hint">${file}</p>`}
      ${lines?.length ? html`<ol class="log" tabindex="0" aria-label="Log">
          ${lines.map((line) => html`<${Line} key=${line.key} line=${line} />`)}<li ref=${end} /></ol>`
        : html`<${Empty} data=${lines}>No line fits.<//>`}
    <//>`;
}

/** The last lines that are wanted; new ones are asked for until `paused`. */
function useLog(wanted, paused) {
  const [shown, setShown] = useState({ lines: null, file: '', error: null });
  const cursor = useRef(/** @type {number | undefined} */ (undefined));
  const count = useRef(0);
  useEffect(() => {
    cursor.current = undefined;
    setShown({ lines: null, file: '', error: null });
  }, [wanted]);
  useEffect(() => {
    if (paused) return undefined;
    let timer = 0;
    let isWanted = true;
    const ask = async () => {
      try {
        const found = await gateway.call('logs.tail', { ...wanted, limit: KEEP, cursor: cursor.current });
        if (!isWanted) return;
        const isNew = cursor.current === undefined || found.reset;
        cursor.current = found.cursor;
        if (found.lines.length || isNew) {
          const more = found.lines.map((text) => ({ key: ++count.current, ...parse(text) }));
          const join = (old) => [...(isNew ? [] : old ?? []), ...more].slice(-KEEP);
          setShown(({ lines }) => ({ file: found.file, error: null, lines: join(lines) }));
        }
      } catch (error) {
        if (isWanted && error.code !== 'OFFLINE') setShown((old) => ({ ...old, error }));
      }
      if (isWanted) timer = setTimeout(ask, POLL_MS);
    };
    ask();
    return () => { isWanted = false; clearTimeout(timer); };
  }, [wanted, paused]);
  return shown;
}

function parse(/** @type {string} */ text) {
  try {
    const { time = '', level = '', subsystem = '', message = text } = JSON.parse(text);
    const [at, kind, from, words] = [time, level, subsystem, message].map(String);
    return { time: at, level: kind, subsystem: from, message: words };
  } catch {
    return { time: '', level: '', subsystem: '', message: text };
  }
}

function Line({ line }) {
  const at = new Date(line.time);
  return html`
    <li>
      ${line.time && html`<time datetime=${line.time} title=${at.toLocaleString()}>${at.toLocaleTimeString()}</time>`}
      ${line.level && html`<${Badge} kind=${KINDS[line.level] ?? ''}>${line.level}<//>`}
      <span class="soft">${line.subsystem.replace(/^clawkit\./, '')}</span>
      <span class="plain">${line.message}</span>
    </li>`;
}
