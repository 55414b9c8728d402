// Serves a folder of static files below a sub-folder of the host, as GitHub Pages does: absolute addresses would break.
import { createReadStream, existsSync, readFileSync, statSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";
import { gzipSync } from "node:zlib";

const TYPES = {
  ".css": "text/css",
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript",
  ".json": "application/json",
  ".png": "image/png",
  ".svg": "image/svg+xml",
  ".tsv": "text/tab-separated-values; charset=utf-8",
  ".wasm": "application/wasm",
  ".webmanifest": "application/manifest+json",
};

export const BASE = "/headroom/";

/** A file that is never answered. */
const UNANSWERED = "unanswered";

/** Starts the server on a free port of the loopback interface; `url` is the page's address. Hosts send files compressed; tests need not wait for it. */
export async function serve(folder, { compressed = false } = {}) {
  const small = new Map();
  if (!existsSync(join(folder, "index.html"))) throw new Error(`no page in ${folder}: run scripts/build first`);
  const server = createServer((request, response) => {
    const path = decodeURIComponent(new URL(request.url, "http://localhost").pathname);
    const inside = path.startsWith(BASE) ? normalize(path.slice(BASE.length)) : "..";
    if (inside === UNANSWERED) return;
    const file = join(folder, inside === "." ? "index.html" : inside);
    if (inside.startsWith("..") || !existsSync(file) || !statSync(file).isFile()) {
      response.writeHead(404).end();
      return;
    }
    const type = { "content-type": TYPES[extname(file)] ?? "application/octet-stream" };
    if (compressed) {
      if (!small.has(file)) small.set(file, gzipSync(readFileSync(file)));
      response.writeHead(200, { ...type, "content-encoding": "gzip" }).end(small.get(file));
      return;
    }
    response.writeHead(200, type);
    // a test may be over, and its folder gone, before a late request is answered
    createReadStream(file)
      .on("error", () => response.destroy())
      .pipe(response);
  });
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  const close = () => {
    server.close();
    server.closeAllConnections();
  };
  return { url: `http://127.0.0.1:${server.address().port}${BASE}`, unanswered: UNANSWERED, close };
}
