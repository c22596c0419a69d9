// @ts-check
// Who this browser is: an Ed25519 key that scripts can use but not read, and the token that the
// gateway gave it. Both are in IndexedDB, never in a URL or a cookie.

const STORE = 'identity';

/** Whether this browser can identify itself: only over HTTPS or on this machine. */
export async function canIdentify() {
  try {
    return (await crypto.subtle.generateKey('Ed25519', false, ['sign'])) != null;
  } catch {
    return false;
  }
}

/** @returns {Promise<IDBDatabase>} */
function open() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open('clawkit', 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE);
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/**
 * @param {IDBTransactionMode} mode
 * @param {(store: IDBObjectStore) => IDBRequest} use
 */
async function inStore(mode, use) {
  const database = await open();
  try {
    return await new Promise((resolve, reject) => {
      const request = use(database.transaction(STORE, mode).objectStore(STORE));
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error);
    });
  } finally {
    database.close();
  }
}

/** @param {ArrayBuffer} buffer */
const base64url = (buffer) =>
  btoa(String.fromCharCode(...new Uint8Array(buffer)))
    .replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');

/** A new identity, which is forgotten unless it is saved. */
export async function makeIdentity() {
  return describe(await crypto.subtle.generateKey('Ed25519', false, ['sign', 'verify']));
}

/** The identity of this browser that was saved; null if there is none. */
export async function loadIdentity() {
  const keys = await inStore('readonly', (store) => store.get('keys'));
  return keys ? describe(keys) : null;
}

async function describe(/** @type {any} */ keys) {
  const raw = await crypto.subtle.exportKey('raw', keys.publicKey);
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', raw));
  const id = Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('');
  return { id, publicKey: base64url(raw), keys };
}

/**
 * Keep an identity and its token, together: other tabs must not see one without the other.
 * @param {{keys: any}} identity @param {string} token
 */
export const saveIdentity = ({ keys }, token) => inStore('readwrite', (store) => {
  store.put(keys, 'keys');
  return store.put(token, 'token');
});

/** @param {CryptoKey} key @param {string} text */
export async function sign(key, text) {
  return base64url(await crypto.subtle.sign('Ed25519', key, new TextEncoder().encode(text)));
}

export const loadToken = () => inStore('readonly', (store) => store.get('token'));
/** @param {string} token */
export const saveToken = (token) => inStore('readwrite', (store) => store.put(token, 'token'));
/** Forget the key and the token. */
export const forget = () => inStore('readwrite', (store) => store.clear());
