// Runs each request on standard input, one JSON object per line, with the original lobster.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const { runToolRequest, resumeToolRequest } = await import(pathToFileURL(process.argv[2]).href);
for await (const line of createInterface({ input: process.stdin })) {
  const { run, resume, cwd } = JSON.parse(line);
  const ctx = { cwd, env: process.env };
  const answer = run ? await runToolRequest({ ...run, ctx }) : await resumeToolRequest({ ...resume, ctx });
  process.stdout.write(JSON.stringify(answer) + "\n");
}
