import { readFileSync, appendFileSync } from "node:fs";

import { defineConfig, type Plugin } from "vite";

const OUT = "../src/sk_agents/ui_dist";

/** Every browser that can show this page reads WOFF2. */
const onlyWoff2: Plugin = {
  name: "only-woff2",
  enforce: "pre",
  transform(code, id) {
    if (!id.includes("katex") || !id.includes(".css")) return null;
    return code.replace(/,url\([^)]+\.(?:woff|ttf)\) format\("[a-z]+"\)/g, "");
  },
};

/** Licences of what is served beside the bundle: a typeface, and a program that runs in a frame. */
const otherLicences: Plugin = {
  name: "other-licences",
  closeBundle() {
    for (const name of ["@fontsource-variable/figtree", "@mermaid-js/tiny"]) {
      const { version, license } = JSON.parse(
        readFileSync(`node_modules/${name}/package.json`, "utf8"),
      ) as { version: string; license: string };
      appendFileSync(
        `${OUT}/licenses.md`,
        `\n## ${name} - ${version} (${license})\n\n${words(name)}`,
      );
    }
  },
};

function words(name: string): string {
  try {
    return readFileSync(`node_modules/${name}/LICENSE`, "utf8");
  } catch {
    return "Its licence is at its repository.\n";
  }
}

// The server serves `assets/` and `index.html` alone; nothing is inlined, because its
// Content-Security-Policy allows neither inline scripts nor styles.
export default defineConfig({
  base: "/",
  publicDir: false,
  plugins: [onlyWoff2, otherLicences],
  build: {
    outDir: OUT,
    emptyOutDir: true,
    assetsInlineLimit: 0,
    target: "es2022",
    // The libraries in the bundle want their licences to go with it.
    license: { fileName: "licenses.md" },
    modulePreload: { polyfill: false },
    rolldownOptions: {
      input: ["index.html", "reference.html"],
      // How long a build takes is of no use to whoever starts the server.
      checks: { pluginTimings: false },
    },
    // The reference is Swagger UI, a program of its own.
    chunkSizeWarningLimit: 2000,
  },
  server: {
    proxy: Object.fromEntries(
      [
        "/chats",
        "/agents",
        "/approvals",
        "/grants",
        "/health",
        "/me",
        "/openapi.json",
        "/sign-in",
      ].map((path) => [path, "http://127.0.0.1:8000"]),
    ),
  },
});
