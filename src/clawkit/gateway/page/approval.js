// A question that waits for an answer: what exactly would run, and the buttons.

import { Badge, Button, Exact, gateway, html, link, oneLine, Time } from './parts.js';

const WORDS = { 'allow-once': 'Allow once', 'allow-always': 'Allow always', deny: 'Deny' };
const KINDS = { 'allow-once': 'primary', 'allow-always': '', deny: 'danger' };
export const EVENTS = ['exec.approval.requested', 'exec.approval.resolved'];

/** @param {{approval: any, session?: boolean}} props */
export function Approval({ approval, session }) {
  const { id, request, expiresAtMs } = approval;
  const decide = (decision) => () => gateway.call('exec.approval.resolve', { id, decision });
  return html`
    <section class="card approval" aria-label="Approval">
      <div class="row"><strong>${request.title || 'May this run?'}</strong>
        <${Badge}>${request.toolName || request.host}<//>
        ${session && html`<a href=${link('chat', request.sessionKey)}>${oneLine(request.sessionKey)}</a>`}
        <span class="grow"></span><small>expires <${Time} at=${expiresAtMs} /></small></div>
      <${Exact} text=${request.command} />
      ${request.cwd && html`<p class="hint">in <code>${request.cwd}</code></p>`}
      ${request.warningText && html`<div class="notice warn plain">${request.warningText}</div>`}
      <div class="row">${request.allowedDecisions.map((each) => html`
        <${Button} key=${each} kind=${KINDS[each]} onClick=${decide(each)}>
          ${WORDS[each]}<//>`)}</div>
    </section>`;
}
