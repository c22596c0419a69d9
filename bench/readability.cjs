// Reads lines of JSON, each with the `html` of a page; writes a line with the `text` that
// Readability.js finds in it.
const { Readability } = require("@mozilla/readability");
const { parseHTML } = require("linkedom");
const lines = require("readline").createInterface({ input: process.stdin });
lines.on("line", (line) => {
  let text = "";
  try {
    text = new Readability(parseHTML(JSON.parse(line).html).document).parse()?.textContent ?? "";
  } catch {
    // It fails on some pages; then it finds nothing.
  }
  process.stdout.write(JSON.stringify({ text }) + "\n");
});
