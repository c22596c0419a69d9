// A question that waits for an answer: what exactly would run, where, and the buttons.

import { Badge, Button, Exact, Field, gateway, html, link, oneLine, Select, Time, useSettled, useState } from './parts.js';

export const EVENTS = ['exec.approval.requested', 'exec.approval.resolved'];

/** @param {{approval: any, session?: boolean}} props */
export function Approval({ approval, session }) {
  const { id, request, expiresAtMs, clawkit } = approval;
  const offers = clawkit.lasting.map(({ extent, words }) => [extent, oneLine(words)]);
  const [extent, setExtent] = useState(offers[0]?.[0]);
  const [reason, setReason] = useState('');
  const isSettled = useSettled();
  const decide = (decision, more) => () => gateway.call('exec.approval.resolve', { id, decision, ...more });
  const where = [clawkit.place, ...clawkit.modes].filter(Boolean).join(', ');
  const warning = request.warningText?.split('\n').map(oneLine).join('\n');
  return html`
    <section class="card approval" aria-label="Approval">
      <div class="row"><strong>${oneLine(request.title || 'May this run?')}</strong>
        <${Badge}>${oneLine(request.toolName || request.host)}<//>
        ${session && html`<a href=${link('chat', request.sessionKey)}>${oneLine(request.sessionKey)}</a>`}
        <span class="grow"></span><small>expires <${Time} at=${expiresAtMs} /></small></div>
      <${Exact} text=${request.command} />
      ${where && html`<p><strong>${oneLine(where)}</strong></p>`}
      ${request.cwd && html`<p class="hint">in <code>${oneLine(request.cwd)}</code></p>`}
      ${warning && html`<div class="notice warn plain">${warning}</div>`}
      <div class="row">
        <${Button} kind="danger" onClick=${decide('deny', { reason })}>Deny<//>
        <${Field} label="Why not" hideLabel placeholder="because…" maxlength="1000" value=${reason} onInput=${setReason} />
        <span class="grow"></span>
        <${Button} disabled=${!isSettled} onClick=${decide('allow-once')}>Allow once<//></div>
      ${offers.length > 0 && html`
        <p class="hint">Allow always means: ${offers.find(([each]) => each === extent)?.[1]}</p>
        <div class="row end">
        <${Select} label="What is always allowed" hideLabel options=${offers} value=${extent} onInput=${setExtent} />
        <${Button} disabled=${!isSettled} onClick=${decide('allow-always', { extent })}>Allow always<//></div>`}
    </section>`;
}
