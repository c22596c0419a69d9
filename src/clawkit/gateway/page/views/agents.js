// @ts-check
// Agents: who there is, with which model and workspace, and where their settings are.

import { Badge, Empty, html, link, Notice, Time, useCall, View } from '../parts.js';

export default function Agents() {
  const { data, error } = useCall('agents.list', {}, ['config.changed']);
  const health = useCall('health', {}, ['sessions.changed']).data;
  return html`
    <${View} title="Agents">
      <${Notice} error=${error} />
      ${data?.agents.map((agent) => html`
        <${Agent} key=${agent.id} agent=${agent} isDefault=${agent.id === data.defaultId} main=${data.mainKey}
          sessions=${health?.agents.find((each) => each.agentId === agent.id)?.sessions} />`)
        ?? html`<${Empty} data=${error ? [] : null} />`}
    <//>`;
}

function Agent({ agent, isDefault, main, sessions }) {
  const identity = useCall('agent.identity.get', { agentId: agent.id }, ['config.changed']).data;
  const last = sessions?.recent[0];
  return html`
    <section class="card agent" aria-label=${`Agent ${agent.id}`}>
      <div class="avatar" aria-hidden="true">${[...(identity?.avatar ?? '')].slice(0, 2).join('')}</div>
      <div class="grow">
        <div class="row"><h2>${identity?.name ?? agent.id}</h2><code>${agent.id}</code>
          ${isDefault && html`<${Badge} kind="good">default<//>`}</div>
        <dl class="facts">
          <dt>Model</dt><dd><code>${agent.model.primary || 'none'}</code></dd>
          <dt>Thinking</dt><dd>${agent.thinkingDefault}</dd>
          <dt>Workspace</dt><dd><code>${agent.workspace}</code></dd>
          <dt>Sessions</dt>
          <dd>${sessions?.count ?? ''} ${last && html`<small>(last used <${Time} at=${last.updatedAt} />)</small>`}</dd>
        </dl>
        <div class="row">
          <a href=${link('chat', `agent:${agent.id}:${main}`)}>Chat</a>
          <a href=${link('policy', agent.id)}>Tools and why</a>
          <a href=${link('config', 'agents')}>Settings</a>
        </div>
      </div>
    </section>`;
}
