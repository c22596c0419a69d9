// Runs JavaScript for child.py, call after call, in one global scope.
// Requests come from descriptor 3, answers go to descriptor 4.
"use strict";

const fs = require("node:fs");
const inspector = require("node:inspector");
const net = require("node:net");
const path = require("node:path");
const util = require("node:util");
const vm = require("node:vm");
const { createRequire } = require("node:module");
const { pathToFileURL } = require("node:url");

const MAX_TEXT = 100_000;
const IMPORT = "__clawkit_import";
const root = path.join(process.cwd(), "call.js");
// Finds dynamic imports outside of strings and comments: scripts of the inspector cannot import.
const TOKENS =
  /\/\/[^\n]*|\/\*[^]*?\*\/|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\[^]|[^`\\])*`|(?<![.\w$])import(?=\s*\()/g;
// Stack frames of this program.
const OURS = /^ +at .*(node_child\.cjs|evalmachine|node:(inspector|vm|events|net|internal\/stream))/;
const HINT = "\n(import statements only work in modules: use require(…) or await import(…))";

const session = new inspector.Session();
session.connect();
let calls = 0;
let onInterrupt = null;

function send(message) {
  let data = Buffer.from(JSON.stringify(message) + "\n");
  while (data.length) data = data.subarray(fs.writeSync(4, data));
}

function shorten(text) {
  return text.length > 2 * MAX_TEXT ? `${text.slice(0, MAX_TEXT)}\n[…]\n${text.slice(-MAX_TEXT)}` : text;
}

function describe(error) {
  let text;
  try {
    text = util.inspect(error);
  } catch {
    text = "an error that cannot be shown";
  }
  const lines = text.split("\n").filter((line) => !OURS.test(line));
  text = lines.join("\n");
  return shorten(text.includes("Cannot use import statement") ? text + HINT : text);
}

/** The value of a remote object of the inspector. */
function resolve(remote) {
  if (!remote.objectId) {
    return "unserializableValue" in remote ? vm.runInThisContext(`(${remote.unserializableValue})`) : remote.value;
  }
  let value;
  hand.value = (given) => (value = given);
  session.post("Runtime.callFunctionOn", {
    functionDeclaration: `function (given) { process[Symbol.for("clawkit.hand")].value(given); }`,
    objectId: remote.objectId,
    arguments: [{ objectId: remote.objectId }],
  });
  session.post("Runtime.releaseObject", { objectId: remote.objectId });
  return value;
}
const hand = (process[Symbol.for("clawkit.hand")] = {});

function tell(outcome) {
  if (outcome.exceptionDetails) {
    const { exception, text } = outcome.exceptionDetails;
    return { traceback: exception ? describe(resolve(exception)) : text };
  }
  const value = resolve(outcome.result);
  return value === undefined ? {} : { value: shorten(util.inspect(value)) };
}

function run(code) {
  calls += 1;
  let done = (message) => {
    done = onInterrupt = null;
    send(message);
  };
  const finish = (message) => done?.(message());
  onInterrupt = () => finish(() => ({ traceback: "Interrupted" }));
  const expression =
    code.replace(TOKENS, (token) => (token === "import" ? IMPORT : token)) + `\n//# sourceURL=call-${calls}.js`;
  hand.go = () =>
    session.post("Runtime.evaluate", { expression, replMode: true, awaitPromise: true }, (error, outcome) =>
      finish(() => {
        try {
          return error ? { traceback: String(error.message) } : tell(outcome);
        } catch (failure) {
          return { traceback: describe(failure) };
        }
      }),
    );
  try {
    // Only code that vm runs can be interrupted while it computes.
    vm.runInThisContext(`process[Symbol.for("clawkit.hand")].go()`, { breakOnSigint: true });
  } catch (error) {
    const text = error.code === "ERR_SCRIPT_EXECUTION_INTERRUPTED" ? "Interrupted" : describe(error);
    finish(() => ({ traceback: text }));
  }
}

globalThis.require = createRequire(root);
globalThis[IMPORT] = (name) => import(/^\.{0,2}\//.test(name) ? pathToFileURL(path.resolve(name)).href : resolveName(name));
Object.defineProperty(globalThis, IMPORT, { enumerable: false });

function resolveName(name) {
  try {
    const found = globalThis.require.resolve(name);
    return path.isAbsolute(found) ? pathToFileURL(found).href : found;
  } catch {
    return name;
  }
}

process.argv.splice(1);
process.exit = (code) => {
  throw new Error(`process.exit(${code ?? ""}) was called; the interpreter keeps running`);
};
for (const event of ["uncaughtException", "unhandledRejection"]) {
  process.on(event, (error) => process.stderr.write(`Uncaught ${describe(error)}\n`));
}
process.on("SIGINT", () => onInterrupt?.());

let asked = "";
const requests = new net.Socket({ fd: 3, readable: true, writable: false });
requests.setEncoding("utf8");
requests.on("data", (data) => {
  asked += data;
  for (let end; (end = asked.indexOf("\n")) >= 0; ) {
    const line = asked.slice(0, end);
    asked = asked.slice(end + 1);
    run(JSON.parse(line).code);
  }
});
requests.on("end", () => process.reallyExit(0));
send({});
