// Approvals: what waits, what was decided, and the commands that need no approval.

import { Approval, EVENTS } from '../approval.js';
import {
  Badge, Button, Confirm, Empty, Exact, Field, gateway, html, Notice, oneLine, Select, Time, useCall, useState, View,
} from '../parts.js';

const KINDS = { allow: 'good', allowed: 'good', ask: 'warn', deny: 'bad', denied: 'bad' };
const SECURITY = ['', 'deny', 'allowlist', 'full'];
const ASK = ['', 'off', 'on-miss', 'always'];
/** How a pattern begins that is a hash of arguments and their directory. */
const EXACT = 'sha256:cwd-argv:v1:';

export default function Approvals() {
  return html`
    <${View} title="Approvals">
      <${PendingList} />
      ${gateway.may('admin') && html`<${Allowlist} />`}
      <${History} />
    <//>`;
}

function PendingList() {
  const { data, error } = useCall('exec.approval.list', {}, EVENTS);
  return html`
    <section aria-label="Pending"><h2>Pending</h2>
      <${Notice} error=${error} />
      ${data?.length ? data.map((each) => html`<${Approval} key=${each.id} approval=${each} session />`)
        : html`<${Empty} data=${data}>Nothing waits for an answer.<//>`}
    </section>`;
}

function History() {
  const { data, error } = useCall('approval.history', {}, EVENTS);
  return html`
    <section aria-label="History"><h2>History</h2>
      <${Notice} error=${error} />
      ${data?.items.length ? html`
        <table><thead><tr><th>When</th><th>Command</th><th>Decision</th><th>By</th></tr></thead>
          <tbody>${data.items.map((each) => html`<tr key=${each.id}><td><${Time} at=${each.resolvedAtMs} /></td>
            <td><${Exact} text=${each.presentation.commandText} /></td>
            <td><${Badge} kind=${KINDS[each.status] ?? 'warn'}>${each.decision ?? each.status}<//></td>
            <td class="hint">${oneLine(each.resolver.id ?? each.resolver.kind).slice(0, 8)}</td></tr>`)}</tbody></table>`
        : html`<${Empty} data=${data}>No command has been decided about yet.<//>`}
    </section>`;
}

/** The allowlist of one agent: edited here, saved as a whole. */
function Allowlist() {
  const { data, error, reload } = useCall('exec.approvals.get');
  const agents = useCall('agents.list').data?.agents.map((each) => each.id) ?? [];
  const [agent, setAgent] = useState('');
  const [edited, setEdited] = useState(/** @type {any} */ (null));
  if (!data) return html`<${Notice} error=${error} />`;
  const names = [...new Set(['*', ...agents, ...Object.keys(data.file.agents ?? {})])];
  const current = agent || agents[0] || 'main';
  const rules = edited ?? data.file.agents?.[current] ?? {};
  const change = (fields) => setEdited({ ...rules, ...fields });
  const save = async () => {
    const file = { version: 1, ...data.file, agents: { ...data.file.agents, [current]: tidy(rules) } };
    await gateway.call('exec.approvals.set', { file, baseHash: data.hash });
    await reload();
    setEdited(null);
  };
  const choose = (name) => { setAgent(name); setEdited(null); };
  return html`
    <section aria-label="Allowlist"><h2>Allowlist</h2>
      <div class="card">
        <div class="row">
          <${Choice} label="Agent" values=${names} value=${current} onInput=${choose} disabled=${edited !== null} />
          <${Choice} label="Security" values=${SECURITY} value=${rules.security ?? ''}
            onInput=${(security) => change({ security })} />
          <${Choice} label="Ask" values=${ASK} value=${rules.ask ?? ''} onInput=${(ask) => change({ ask })} />
        </div>
        <${Entries} entries=${rules.allowlist ?? []} onChange=${(allowlist) => change({ allowlist })} />
        <div class="row end">
          ${edited && html`
            <${Confirm} question="Discard the changes?" action="Discard" onClick=${() => setEdited(null)}>Discard<//>`}
          <${Button} kind="primary" disabled=${!edited} onClick=${save}>Save<//></div>
      </div>
      <${Tester} agent=${current} edited=${edited && (edited.allowlist ?? [])} />
    </section>`;
}

/** Without empty fields: those are not settings. */
const tidy = (rules) => Object.fromEntries(Object.entries(rules).filter(([, value]) => value !== ''));

const Choice = ({ values, ...more }) => html`
  <${Select} options=${values.map((each) => [each, each || 'as configured'])} ...${more} />`;

function Entries({ entries, onChange }) {
  const set = (index, fields) => onChange(entries.with(index, { ...entries[index], ...fields }));
  const toEntry = (each) => (typeof each === 'string' ? { pattern: each } : each);
  const remove = (index) => () => onChange(entries.toSpliced(index, 1));
  return html`
    <table>
      <thead><tr><th>Program (path, name or pattern)</th><th>Arguments</th><th>Last used</th><td></td></tr></thead>
      <tbody>${entries.map(toEntry).map((entry, index) => html`
        <tr key=${entry.id || index}>
          <td><${Field} label="Program" hideLabel class="mono" value=${entry.pattern}
            onInput=${(pattern) => set(index, { pattern })} /></td>
          <td><${Arguments} entry=${entry} onInput=${(args) => set(index, { args: args || null })} /></td>
          <td><${Time} at=${entry.lastUsedAt} /></td>
          <td><${Button} kind="icon" label="Remove ${entry.pattern}" onClick=${remove(index)}>✕<//></td>
        </tr>`)}</tbody>
    </table>
    <p><${Button} onClick=${() => onChange([...entries, { pattern: '' }])}>Add an entry<//>
      <span class="hint"> Arguments: a preset such as <code>git</code>, or <code>any</code>: no check.</span></p>`;
}

function Arguments({ entry, onInput }) {
  const { args, argPattern } = entry;
  const isText = args === undefined || args === null || typeof args === 'string';
  return html`
    ${isText ? html`<${Field} label="Arguments" hideLabel class="mono" value=${args ?? ''} placeholder="checked"
      onInput=${onInput} />` : html`<code>${JSON.stringify(args)}</code>`}
    ${argPattern && (argPattern.startsWith(EXACT) ? html`<small>with exactly these arguments, in this directory</small>`
      : html`<code>${argPattern}</code>`)}`;
}

/** What would happen to a command, by the entries as they are shown above. */
function Tester({ agent, edited }) {
  const [command, setCommand] = useState('');
  const [place, setPlace] = useState('host');
  const [verdict, setVerdict] = useState(null);
  const test = async () => {
    const list = edited ? { allowlist: edited } : {};
    const whom = agent === '*' ? {} : { agentId: agent };
    setVerdict(await gateway.call('exec.approvals.check', { command, place, ...whom, ...list }));
  };
  return html`
    <div class="card">
      <h3>Test a command</h3>
      <div class="row"><div class="grow"><${Field} label="Command" class="mono" value=${command} onInput=${setCommand}
          hint=${edited ? 'Judged by the entries above, as edited. Nothing runs.' : 'Nothing runs.'} /></div>
        <${Choice} label="Where" values=${['host', 'sandbox', 'auto']} value=${place} onInput=${setPlace} />
        <${Button} disabled=${!command.trim()} onClick=${test}>Test<//></div>
      <div aria-live="polite">${verdict && html`<${Verdict} verdict=${verdict} />`}</div>
    </div>`;
}

function Verdict({ verdict }) {
  return html`
    <p><${Badge} kind=${KINDS[verdict.verdict]}>${verdict.verdict}<//> ${verdict.reason}</p>
    ${verdict.analysis?.ok === false && html`<${Notice} kind="warn">Not understood: ${verdict.analysis.reason}<//>`}
    ${verdict.segments.length > 0 && html`
      <table><thead><tr><th>Part</th><th>Program</th><th>Verdict</th></tr></thead>
        <tbody>${verdict.segments.map((part, index) => html`<tr key=${index}>
          <td><${Exact} text=${part.text} /></td><td><code>${part.resolved || part.builtin}</code></td>
          <td><${Badge} kind=${part.by ? 'good' : 'bad'}>${part.by ?? 'not allowed'}<//> ${part.reason}
            ${part.toAllow && html`<div class="hint">To allow it: <code>${part.toAllow}</code></div>`}</td>
        </tr>`)}</tbody></table>`}
    <p class="hint">${verdict.sources.join('; ')}</p>`;
}
