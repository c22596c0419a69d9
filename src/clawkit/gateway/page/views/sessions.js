// Sessions: all conversations as a tree with their sub-agents.

import {
  Badge, Button, compact, Confirm, createChat, Dialog, Empty, Field, gateway, html, link, money, Notice, oneLine, Time,
  useCall, useState, View,
} from '../parts.js';

const PAGE = 100;

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
  const [limit, setLimit] = useState(PAGE);
  const { data, error } = useCall('sessions.list', { limit, search }, ['sessions.changed']);
  return html`
    <${View} title="Sessions" actions=${html`<${Button} kind="primary" onClick=${createChat}>New chat<//>`}>
      <${Field} label="Search names and keys" type="search" value=${search} onInput=${setSearch} />
      <${Notice} error=${error} />
      ${data?.count ? html`<${Branch} below=${toTree(data.sessions)} parent="" />`
        : html`<${Empty} data=${error ? [] : data}>${search ? 'No session matches.' : 'There are no sessions yet.'}<//>`}
      ${data?.hasMore && html`<p class="row"><${Button} onClick=${() => setLimit(limit + PAGE)}>Show more<//></p>`}
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
