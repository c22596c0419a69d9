// What is shown until this browser is logged in.

import { Button, Exact, Field, html, Notice, useEffect, useGateway, useState } from '../parts.js';

/** What an error of a login means, and what to do. @type {Record<string, string>} */
const REASONS = {
  AUTH_TOKEN_MISMATCH: 'That token is wrong.',
  AUTH_PASSWORD_MISMATCH: 'That password is wrong.',
  AUTH_BOOTSTRAP_TOKEN_INVALID: 'That link has been used or has expired. Print a new one: clawkit gateway url',
  AUTH_DEVICE_TOKEN_MISMATCH: 'This browser was logged out.',
  AUTH_SCOPE_MISMATCH: 'This browser may do less than this page needs. Log in again.',
  PAIRING_REQUIRED: 'The request was rejected, or has expired.',
  CONTROL_UI_ORIGIN_NOT_ALLOWED:
    'The gateway does not know this address. Add its origin to gateway.controlUi.allowedOrigins.',
};
const QUIET = ['AUTH_TOKEN_MISSING', 'AUTH_PASSWORD_MISSING'];

function explain(/** @type {any} */ { problem, hello }) {
  if (!problem) return '';
  if (QUIET.includes(problem.details.code)) return hello ? REASONS.AUTH_DEVICE_TOKEN_MISMATCH : '';
  if (problem.details.code === 'AUTH_RATE_LIMITED') {
    const minutes = Math.ceil(problem.retryAfterMs / 60_000);
    return `Too many failed logins from this address. Try again in ${minutes} min.`;
  }
  return REASONS[problem.details.code] ?? problem.message;
}

export default function Login() {
  const gateway = useGateway();
  useEffect(() => { document.title = 'Log in · clawkit'; }, []);
  const Shown = { pairing: Pairing, insecure: Insecure }[gateway.state] ?? Secret;
  return html`
    <main class="login" id="main">
      <h1><img src="icon.svg" alt="" width="40" height="40" />clawkit</h1>
      <${Shown} gateway=${gateway} />
    </main>`;
}

function Secret({ gateway }) {
  const [secret, setSecret] = useState('');
  const isPassword = /PASSWORD/.test(gateway.problem?.details.code ?? '');
  const submit = (event) => {
    event.preventDefault();
    if (secret) gateway.login(secret);
  };
  const why = explain(gateway);
  useEffect(() => document.querySelector('.login input')?.focus(), []);
  return html`
    <form onSubmit=${submit}>
      ${why && html`<div class="notice bad" role="alert">${why}</div>`}
      <${Field} label=${isPassword ? 'Password' : 'Token'} type="password" autocomplete="current-password"
        autofocus required value=${secret} onInput=${setSecret}
        hint=${isPassword ? 'gateway.auth.password of the configuration.' : 'Print it with: clawkit gateway token'} />
      <button class="primary" type="submit">Log in</button>
      <p class="hint">Or open the link that <code>clawkit gateway url</code> prints: it works once.</p>
    </form>`;
}

function Pairing({ gateway }) {
  const id = gateway.problem.details.requestId;
  const params = JSON.stringify({ requestId: id });
  return html`
    <div role="status">
      <p><strong>This browser is waiting for approval.</strong></p>
      <p>Approve it in the devices of a browser that is logged in, or on the machine of the gateway:</p>
      <${Exact} text=${`clawkit gateway call device.pair.approve --params '${params}'`} />
      <p class="hint">Request ${id}. It expires after five minutes.</p>
      <${Button} onClick=${() => gateway.logout()}>Cancel<//>
    </div>`;
}

const port = location.port || '18789';
const Insecure = () => html`
  <${Notice} kind="bad">
    This browser cannot identify itself here: it needs HTTPS or an address of this machine, and Ed25519
    (Chrome 137, Firefox 129, Safari 17). Forward the port, then open http://127.0.0.1:${port}/ :
    <${Exact} text=${`ssh -L ${port}:127.0.0.1:${port} user@gateway`} />
  <//>`;
