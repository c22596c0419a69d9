// @ts-check
// The connection to the gateway: login, calls, events, and reconnecting.

import {
  canIdentify, forget, loadIdentity, loadToken, makeIdentity, saveIdentity, saveToken, sign,
} from './identity.js';

const PROTOCOL = 4;
const SCOPES = ['admin', 'read', 'write', 'approvals', 'pairing'].map((name) => `operator.${name}`);
const CALL_MS = 30_000;
const MAX_RETRY_MS = 5_000;
const PAIRING_RETRY_MS = 2_000;

/** An error answer of the gateway, or a call that got none. */
export class CallError extends Error {
  /** @param {any} error */
  constructor(error) {
    super(error.message ?? 'The gateway refused the request.');
    this.code = error.code ?? '';
    this.details = error.details ?? {};
    this.retryAfterMs = error.retryAfterMs ?? 0;
  }
}

/** The one-time code in the address. It must not stay there, and not in the history either. */
function takeCode() {
  const code = new URLSearchParams(location.hash.slice(1)).get('code');
  if (code) history.replaceState(null, '', location.pathname);
  return code;
}

/**
 * Where the connection is: `connecting`, `login` (a secret is needed), `pairing` (a person has to
 * approve this browser), `ready`, `offline` (reconnecting), or `insecure` (cannot identify itself).
 * @typedef {'connecting' | 'login' | 'pairing' | 'ready' | 'offline' | 'insecure'} State
 */
class Gateway {
  /** @type {State} */
  state = 'connecting';
  /** Why the last login was refused. @type {CallError | null} */
  problem = null;
  /** The hello of the gateway, once ready. @type {any} */
  hello = null;
  /** @type {Set<() => void>} */
  #watchers = new Set();
  /** @type {Map<string, Set<(payload: any) => void>>} */
  #listeners = new Map();
  /** @type {Map<string, {resolve: (payload: any) => void, reject: (error: Error) => void}>} */
  #calls = new Map();
  /** @type {WebSocket | null} */
  #socket = null;
  /** @type {Record<string, string>} */
  #secret = {};
  /** Who this browser will be once it is logged in with that. @type {any} */
  #identity = null;
  /** @type {Map<string, any>[]} */
  #memories = [];
  #retryMs = 500;
  #timer = 0;
  #count = 0;

  /** Call `watch` whenever the state changes; returns a function that ends it. */
  watch(/** @type {() => void} */ watch) {
    this.#watchers.add(watch);
    return () => this.#watchers.delete(watch);
  }

  /**
   * Call `listen` with the payload of every such event; returns a function that ends it.
   * @param {string} event @param {(payload: any) => void} listen
   */
  on(event, listen) {
    const listeners = this.#listeners.get(event) ?? new Set();
    this.#listeners.set(event, listeners.add(listen));
    return () => listeners.delete(listen);
  }

  /**
   * Call a method. Rejects with a `CallError`.
   * @param {string} method @param {object} [params] @returns {Promise<any>}
   */
  call(method, params = {}) {
    if (this.state !== 'ready') {
      return Promise.reject(new CallError({ code: 'OFFLINE', message: 'Not connected.' }));
    }
    return this.#request(method, params);
  }

  /** Whether this browser may call methods of a scope, such as `admin`. */
  may(/** @type {string} */ scope) {
    const held = this.hello?.auth?.scopes ?? [];
    return held.includes('operator.admin') || held.includes(`operator.${scope}`);
  }

  /** A map for what a view remembers. It is emptied at a logout: someone else may log in next. */
  remember() {
    const made = new Map();
    this.#memories.push(made);
    return made;
  }

  /** Connect with what is stored, or with the one-time code in the address. */
  async start() {
    const code = takeCode();
    if (code) this.#secret = { bootstrapToken: code };
    // An address with a code can be pasted into a tab with this page.
    addEventListener('hashchange', () => {
      const pasted = takeCode();
      if (pasted && this.state === 'login') this.#logInWith({ bootstrapToken: pasted });
    });
    if (!(await canIdentify())) return this.#become('insecure');
    this.#connect();
  }

  /** Log in with a secret that was typed. */
  login(/** @type {string} */ secret) {
    this.#logInWith({ token: secret.trim(), password: secret });
  }

  /** Connect now, and not after the rest of the wait. */
  retry() {
    if (this.state === 'offline') this.#connect();
  }

  #logInWith(/** @type {Record<string, string>} */ secret) {
    this.#secret = secret;
    this.#identity = null;
    this.problem = null;
    this.#become('connecting');
    this.#connect();
  }

  /** Forget this browser, here and at the gateway. */
  async logout() {
    const { id } = (await loadIdentity()) ?? {};
    await this.call('device.pair.remove', { deviceId: id }).catch(() => {});
    await forget();
    this.#secret = {};
    this.#identity = null;
    this.problem = null;
    this.#disconnect();
    this.#become('login');
  }

  #become(/** @type {State} */ state) {
    this.state = state;
    if (state === 'login') for (const each of this.#memories) each.clear();
    for (const watch of this.#watchers) watch();
  }

  #connect() {
    this.#disconnect();
    const url = new URL('.', location.href);
    url.protocol = url.protocol.replace('http', 'ws');
    const socket = new WebSocket(url);
    this.#socket = socket;
    socket.onmessage = (message) => {
      if (socket === this.#socket) this.#receive(JSON.parse(message.data));
    };
    socket.onclose = () => {
      if (socket === this.#socket) this.#lose();
    };
  }

  #disconnect() {
    clearTimeout(this.#timer);
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
    const lost = new CallError({ code: 'OFFLINE', message: 'The connection was lost.' });
    for (const call of this.#calls.values()) call.reject(lost);
    this.#calls.clear();
  }

  #lose() {
    this.#disconnect();
    if (this.state === 'login') return;
    if (this.state !== 'pairing') this.#become('offline');
    const wait = this.state === 'pairing' ? PAIRING_RETRY_MS : this.#retryMs * (1 - Math.random() / 2);
    this.#retryMs = Math.min(this.#retryMs * 2, MAX_RETRY_MS);
    this.#timer = setTimeout(() => this.#connect(), wait);
  }

  #receive(/** @type {any} */ frame) {
    if (frame.type === 'res') {
      const call = this.#calls.get(frame.id);
      this.#calls.delete(frame.id);
      if (frame.ok) call?.resolve(frame.payload);
      else call?.reject(new CallError(frame.error ?? {}));
    } else if (frame.event === 'connect.challenge') {
      this.#logIn(frame.payload);
    } else {
      for (const listen of this.#listeners.get(frame.event) ?? []) listen(frame.payload);
    }
  }

  /** @param {string} method @param {object} params @returns {Promise<any>} */
  #request(method, params) {
    const id = `${++this.#count}`;
    return new Promise((resolve, reject) => {
      const late = new CallError({ code: 'TIMEOUT', message: 'The gateway did not answer in time.' });
      const timer = setTimeout(() => this.#calls.delete(id) && reject(late), CALL_MS);
      const settle = (/** @type {(value: any) => void} */ end) => (/** @type {any} */ value) => {
        clearTimeout(timer);
        end(value);
      };
      this.#calls.set(id, { resolve: settle(resolve), reject: settle(reject) });
      this.#socket?.send(JSON.stringify({ type: 'req', id, method, params }));
    });
  }

  async #logIn(/** @type {{nonce: string, ts: number}} */ challenge) {
    const known = Object.keys(this.#secret).length ? null : await loadIdentity();
    const stored = known && (await loadToken());
    /** @type {Record<string, string>} */
    const auth = stored ? { deviceToken: stored } : this.#secret;
    // Whoever had this port before may have left a key that they know: none is used without its token.
    const identity = stored ? known : (this.#identity ??= await makeIdentity());
    const client = {
      id: 'openclaw-control-ui',
      version: '1',
      platform: 'web',
      mode: 'webchat',
      displayName: `Control page (${navigator.platform})`,
    };
    const signed = [
      ...['v2', identity.id, client.id, client.mode, 'operator', SCOPES.join(','), challenge.ts],
      ...[auth.token ?? auth.deviceToken ?? auth.bootstrapToken ?? '', challenge.nonce],
    ].join('|');
    const device = {
      id: identity.id,
      publicKey: identity.publicKey,
      signature: await sign(identity.keys.privateKey, signed),
      signedAt: challenge.ts,
      nonce: challenge.nonce,
    };
    const range = { minProtocol: PROTOCOL, maxProtocol: PROTOCOL };
    try {
      const params = { ...range, client, role: 'operator', scopes: SCOPES, auth, device };
      await this.#welcome(await this.#request('connect', params));
    } catch (error) {
      if (error instanceof CallError && error.code !== 'OFFLINE') this.#explain(error);
    }
  }

  async #welcome(/** @type {any} */ hello) {
    this.hello = hello;
    this.problem = null;
    this.#retryMs = 500;
    // From now on the browser's own token is enough; the secret is not kept.
    const former = this.#identity && (await loadToken()) ? await loadIdentity() : null;
    const { deviceToken } = hello.auth;
    if (this.#identity) await saveIdentity(this.#identity, deviceToken ?? '');
    else if (deviceToken) await saveToken(deviceToken);
    this.#secret = {};
    this.#identity = null;
    if (former) await this.#request('device.pair.remove', { deviceId: former.id }).catch(() => {});
    await this.#request('sessions.subscribe', {});
    this.#become('ready');
  }

  #explain(/** @type {CallError} */ error) {
    if (error.code === 'UNAVAILABLE') return;
    const { code, requestId } = error.details;
    const asked = this.problem?.details.requestId;
    this.problem = error;
    // Another id means that the request was rejected, or has expired: asking again is up to people.
    if (code === 'PAIRING_REQUIRED' && (!asked || asked === requestId)) return this.#become('pairing');
    if (code === 'AUTH_DEVICE_TOKEN_MISMATCH') saveToken('');
    this.#secret = {};
    this.#become('login');
  }
}

export const gateway = new Gateway();
