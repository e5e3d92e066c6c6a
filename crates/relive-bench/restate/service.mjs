// The service that the benchmark measures beside Relive: each step is one durable side effect of Restate.
//
// node service.mjs SDK_DIRECTORY PORT
import { createRequire } from "node:module";
import { mkdir, open, readFile, rename } from "node:fs/promises";
import { dirname } from "node:path";
import { pathToFileURL } from "node:url";

// The SDK uses it, and Node.js 20 does not have it.
Promise.withResolvers ??= () => {
  let settle;
  const promise = new Promise((resolve, reject) => (settle = { resolve, reject }));
  return { promise, ...settle };
};

const [directory, port] = process.argv.slice(2);
const sdk = createRequire(pathToFileURL(`${directory}/`)).resolve("@restatedev/restate-sdk");
const restate = await import(pathToFileURL(sdk));

async function sync(path, flags, bytes) {
  const file = await open(path, flags);
  try {
    if (bytes !== undefined) await file.writeFile(bytes);
    await file.sync();
  } finally {
    await file.close();
  }
}

// As Relive's `write`: a file of its own that is synced, renamed, and its directory synced.
async function replace(path, text) {
  await sync(`${path}.tmp`, "w", text);
  await rename(`${path}.tmp`, path);
  await sync(dirname(path), "r");
  return `wrote ${text.length} bytes to ${path}`;
}

const steps = restate.service({
  name: "steps",
  handlers: {
    read: async (context, { path, count }) => {
      let bytes = 0;
      for (let step = 0; step < count; step++) {
        bytes += (await context.run("read", () => readFile(path, "utf8"))).length;
      }
      return bytes;
    },
    write: async (context, { path, text, count }) => {
      await context.run("directory", () => mkdir(dirname(path), { recursive: true }).then(() => null));
      for (let step = 0; step < count; step++) {
        // The text differs, because one that is there already is not written.
        await context.run("write", () => replace(path, `${step} ${text}`));
      }
      return count;
    },
  },
});

const server = restate.serve ?? ((options) => restate.endpoint().bind(...options.services).listen(options.port));
await server({ services: [steps], port: Number(port) });
