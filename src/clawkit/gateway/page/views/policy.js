// @ts-check
// Policy explorer: every tool of an agent in a situation, with what kept or removed it.

import { Badge, Empty, Field, html, link, Notice, Select, useCall, useState, View } from '../parts.js';

const KINDS = { 'in force': 'good', 'removed by policy': 'bad' };
const YES_NO = [['', 'As it is'], ['true', 'Yes'], ['false', 'No']];

export default function Policy({ path }) {
  const agents = useCall('agents.list').data;
  const [picked, setPicked] = useState({});
  const [wanted, setWanted] = useState({ text: '', state: '' });
  const agentId = path[0] || agents?.defaultId;
  const models = useCall(agentId ? 'models.list' : null, { agentId, view: 'all' }).data?.models ?? [];
  const { data, error } = useCall(agentId ? 'tools.effective' : null, situation(agentId, picked), ['config.changed']);
  const ids = agents?.agents.map((each) => each.id) ?? [];
  const pick = (name) => (value) => setPicked({ ...picked, [name]: value });
  const rows = data?.trace.filter((row) => fits(row, wanted));
  return html`
    <${View} title="Policy" wide>
      <p class="hint">Pick a situation to see which tools an agent has in it, and why. Nothing is changed.</p>
      <div class="picks">
        <${Select} label="Agent" value=${agentId} options=${ids.map((id) => [id, id])}
          onInput=${(id) => { location.hash = link('policy', id); }} />
        <${Field} label="Model" list="policy-models" placeholder="its own" onInput=${pick('model')} />
        <datalist id="policy-models">${models.map(({ provider, id }) => html`
          <option value="${provider}/${id}" />`)}</datalist>
        <${Field} label="Channel" placeholder="none" onInput=${pick('channel')} />
        <${Field} label="Account" placeholder="any" onInput=${pick('accountId')} />
        <${Field} label="Group" placeholder="none" onInput=${pick('groupId')} />
        <${Field} label="Sender" placeholder="unknown" onInput=${pick('senderId')} />
        <${Select} label="Sender is the owner" options=${YES_NO} onInput=${pick('senderIsOwner')} />
        <${Select} label="In a sandbox" options=${YES_NO} onInput=${pick('sandboxed')} />
      </div>
      <${Notice} error=${error} />
      ${data?.warnings.map((each) => html`<${Notice} kind="warn" key=${each}>${each}<//>`)}
      <div class="picks">
        <${Field} label="Filter" type="search" placeholder="tool or setting"
          onInput=${(text) => setWanted({ ...wanted, text })} />
        <${Select} label="State" options=${[['', 'all'], ...states(data?.trace)]}
          onInput=${(state) => setWanted({ ...wanted, state })} />
      </div>
      ${rows?.length ? html`<${Tools} rows=${rows} />`
        : html`<${Empty} data=${error ? [] : rows ?? null}>No tool fits.<//>`}
    <//>`;
}

/** The parameters for what was picked; what was not picked is as it is. */
function situation(agentId, picked) {
  const given = Object.entries(picked).filter(([, value]) => value);
  const typed = given.map(([key, value]) => [key, { true: true, false: false }[value] ?? value]);
  return { sessionKey: 'main', agentId, ...Object.fromEntries(typed) };
}

/** The states that tools are in, and how many are. */
function states(rows = []) {
  return [...Map.groupBy(rows, (row) => row.state)].map(([state, found]) => [state, `${state} (${found.length})`]);
}

function fits(row, { text, state }) {
  const words = [row.tool, row.section, row.description, ...row.steps.flatMap((step) => [step.why, step.key])];
  return (!state || row.state === state) && words.join('\n').toLowerCase().includes(text.trim().toLowerCase());
}

function Tools({ rows }) {
  return html`
    <div class="scroll-x"><table class="policy">
      <caption class="unseen">Tools, and what kept or removed them</caption>
      <thead><tr><th>Tool</th><th>State</th><th>Decided by</th><th class="number">Tokens</th></tr></thead>
      <tbody>${rows.map((row) => html`
        <tr key=${row.tool}>
          <th scope="row"><code>${row.tool}</code><small>${row.description}</small></th>
          <td><${Badge} kind=${KINDS[row.state] ?? 'warn'}>${row.state}<//></td>
          <td><${Reason} row=${row} /></td>
          <td class="number">${row.tokens ?? ''}</td>
        </tr>`)}</tbody>
    </table></div>`;
}

function Reason({ row }) {
  const last = row.steps.at(-1);
  if (!last && !row.rules.length) return html`<span class="soft">no setting restricts it</span>`;
  return html`
    <details>
      <summary>${last ? html`${last.why}` : 'rules on its arguments'}</summary>
      <table>
        <thead><tr><th>Step</th><th>Effect</th><th>Setting</th><th>Entry</th></tr></thead>
        <tbody>
          ${row.steps.map((step) => html`<tr key=${step.number}>
            <td>${step.number}. ${step.step}</td>
            <td class=${step.effect === 'allow' ? 'good' : 'bad'}>${step.effect === 'allow' ? 'keeps' : 'removes'}</td>
            <td><code>${step.key}</code></td><td>${step.entry !== null && html`<code>${step.entry}</code>`}</td></tr>`)}
          ${row.rules.map((rule) => html`<tr key=${rule.key}>
            <td>arguments</td><td>${rule.effect}</td><td><code>${rule.key}</code></td>
            <td><code>${JSON.stringify({ action: rule.action ?? undefined, ...rule.params })}</code></td></tr>`)}
        </tbody>
      </table>
    </details>`;
}
