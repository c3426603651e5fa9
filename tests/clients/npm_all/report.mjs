// How a driver talks to the tests, as `drivers/report.py` does for the Python packages: it makes calls with a package
// and prints what came of each.
//
// `node NAME.mjs BASE_URL [CALL...]` makes all its calls, or those that are named. Standard input has the constants of
// `inputs.py`. The last line is `{CALL: {"result": ...} or {"error": {"types": ..., "message": ...}}}`.
import { text } from "node:stream/consumers";

const [, , url, ...named] = process.argv;

/** Where the server is, without a slash at the end. */
export const baseURL = url;

/** The constants of `inputs.py`. */
export const inputs = JSON.parse(await text(process.stdin));

/** Make the calls that the command line asks for, and print what came of them. */
export async function report(calls) {
  const outcomes = {};
  for (const name of named.length > 0 ? named : Object.keys(calls)) {
    try {
      outcomes[name] = { result: await calls[name]() };
    } catch (error) {
      outcomes[name] = { error: { types: typesOf(error), message: wordsOf(error) } };
    }
  }
  console.log(JSON.stringify(outcomes));
}

/** The name that an error gives itself, then the names of its class and of those above it. */
function typesOf(error) {
  const names = [error.name];
  for (let kind = Object.getPrototypeOf(error); kind !== null; kind = Object.getPrototypeOf(kind)) {
    names.push(kind.constructor.name);
  }
  return names;
}

/** What a client takes for the server's words. As text, some errors show all of the answer. */
function wordsOf(error) {
  const body = error.body ?? error.httpResponse?.body;
  return body?.message ?? error.message;
}
