import { defineConfig } from "vite";

// The server serves `assets/` and `index.html` alone; nothing is inlined, because its
// Content-Security-Policy allows neither inline scripts nor styles.
export default defineConfig({
  base: "/",
  publicDir: false,
  build: {
    outDir: "../src/sk_agents/ui_dist",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    target: "es2022",
    // The libraries in the bundle want their licences to go with it.
    license: { fileName: "licenses.md" },
    modulePreload: { polyfill: false },
    rolldownOptions: { input: ["index.html", "reference.html"] },
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
