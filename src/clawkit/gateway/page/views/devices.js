// @ts-check
// Devices: who asks to be paired, who is, and their tokens; nodes, and what they offer.

import { loadIdentity, saveToken } from '../identity.js';
import {
  Badge, Button, Confirm, Empty, gateway, html, Notice, oneLine, Time, useCall, useEffect, useSettled, useState, View,
} from '../parts.js';

const EVENTS = ['device.pair.requested', 'device.pair.resolved', 'presence'];
const NODE_EVENTS = ['node.pair.requested', 'node.pair.resolved', 'presence'];

export default function Devices() {
  const { data, error, reload } = useCall('device.pair.list', {}, EVENTS);
  const [own, setOwn] = useState('');
  useEffect(() => { loadIdentity().then((own) => setOwn(own?.id ?? '')); }, []);
  return html`
    <${View} title="Devices">
      <${Notice} error=${error} />
      ${data?.pending.length > 0 && html`<h2>Waiting for approval</h2>`}
      ${data?.pending.map((each) => html`
        <${Pending} key=${each.requestId} request=${each} kind="device" reload=${reload} />`)}
      ${data && html`<h2>Paired devices</h2>`}
      ${data?.paired.map((each) => html`
        <${Paired} key=${each.deviceId} device=${each} isOwn=${each.deviceId === own} reload=${reload} />`)}
      ${!data?.paired.length && html`<${Empty} data=${error ? [] : data}>No device is paired.<//>`}
      ${gateway.may('read') && html`<${Nodes} />`}
    <//>`;
}

const nameOf = (about) => oneLine(about.displayName || about.clientId || 'unnamed');

/** Call a method, and then show what is there now. */
const act = (method, params, reload) => async () => {
  const done = await gateway.call(method, params);
  await reload();
  return done;
};

function Pending({ request, kind, reload }) {
  const { requestId } = request;
  const isSettled = useSettled();
  const what = kind === 'node' ? 'agents will be able to use these commands there' : 'it may do what its scopes allow';
  return html`
    <section class="card approval" aria-label="Request to be paired">
      <${Facts} about=${request} id=${request.deviceId ?? request.nodeId} />
      <p class="hint">Approve it only if you know it: ${what}.</p>
      <div class="row">
        <${Button} kind="primary" disabled=${!isSettled} onClick=${act(`${kind}.pair.approve`, { requestId }, reload)}>Approve<//>
        <${Button} kind="danger" onClick=${act(`${kind}.pair.reject`, { requestId }, reload)}>Reject<//>
      </div>
    </section>`;
}

function Paired({ device, isOwn, reload }) {
  const { deviceId } = device;
  return html`
    <section class="card" aria-label=${`Device ${nameOf(device)}`}>
      <${Facts} about=${device} id=${deviceId}>
        ${isOwn && html`<${Badge}>this browser<//>`}
        <${Badge} kind=${device.connected ? 'good' : ''}>${device.connected ? 'connected' : 'not connected'}<//>
      <//>
      ${device.tokens.map((token) => html`
        <${Token} key=${token.role} device=${device} token=${token} isOwn=${isOwn} reload=${reload} />`)}
      <div class="row end">
        <${Confirm} question="Remove this device?" action="Remove" kind="danger"
          onClick=${act('device.pair.remove', { deviceId }, reload)}>Remove device<//>
      </div>
    </section>`;
}

function Token({ device, token, isOwn, reload }) {
  const params = { deviceId: device.deviceId, role: token.role };
  const rotate = async () => {
    const done = await act('device.token.rotate', params, reload)();
    if (isOwn && done.token) await saveToken(done.token);
  };
  return html`
    <div class="row token">
      <span class="grow">Token for <strong>${token.role}</strong>
        ${token.revokedAtMs ? html` · revoked <${Time} at=${token.revokedAtMs} />`
          : html` · since <${Time} at=${token.rotatedAtMs ?? token.createdAtMs} />`}</span>
      ${!token.revokedAtMs && html`
        <${Confirm} question="Replace this token? The device has to log in again." action="Replace"
          onClick=${rotate}>Rotate<//>
        <${Confirm} question="End this token? The device loses its access." action="Revoke" kind="danger"
          onClick=${act('device.token.revoke', params, reload)}>Revoke<//>`}
    </div>`;
}

function Facts({ about, id, children }) {
  const scopes = about.scopes ?? about.commands ?? [];
  return html`
    <div class="row"><h3 class="name">${nameOf(about)}</h3>${children}</div>
    <dl class="facts">
      <dt>Id</dt><dd><code>${oneLine(id)}</code></dd>
      <dt>Runs on</dt><dd>${oneLine([about.platform, about.deviceFamily, about.version].filter(Boolean).join(' · '))}</dd>
      ${about.remoteIp && html`<dt>Address</dt><dd><code>${about.remoteIp}</code></dd>`}
      ${scopes.length > 0 && html`<dt>${about.commands ? 'Commands' : 'Scopes'}</dt>
        <dd class="row">${scopes.map((each) => html`<${Badge} key=${each}>${oneLine(each.replace('operator.', ''))}<//>`)}</dd>`}
      ${about.ts && html`<dt>Asked</dt><dd><${Time} at=${about.ts} /></dd>`}
      ${about.lastSeenAtMs && html`<dt>Last seen</dt><dd><${Time} at=${about.lastSeenAtMs} /></dd>`}
    </dl>`;
}

function Nodes() {
  const { data, error, reload } = useCall('node.list', {}, NODE_EVENTS);
  const pairing = useCall('node.pair.list', {}, NODE_EVENTS);
  const again = async () => { await Promise.all([reload(), pairing.reload()]); };
  return html`
    <h2>Nodes</h2>
    <${Notice} error=${error ?? pairing.error} />
    ${pairing.data?.pending.map((each) => html`
      <${Pending} key=${each.requestId} request=${each} kind="node" reload=${again} />`)}
    ${data?.nodes.map((node) => html`
      <section class="card" key=${node.nodeId} aria-label=${`Node ${nameOf(node)}`}>
        <${Facts} about=${node} id=${node.nodeId}>
          <${Badge} kind=${node.connected ? 'good' : ''}>${node.connected ? 'connected' : 'not connected'}<//><//>
      </section>`)}
    ${!data?.nodes.length && html`<${Empty} data=${error ? [] : data}>There are no nodes.<//>`}`;
}
