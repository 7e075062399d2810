// How the dashboard is built: three files with names that stay, so that the program can carry them and CI can compare them.
import { defineConfig } from 'vite';

const server = process.env['ICECORE_SERVER'] ?? 'http://127.0.0.1:7431';

export default defineConfig({
  // Errors that a person sees in the browser's console lead to no map: what is shipped is what is committed.
  build: {
    outDir: '../crates/icecore/src/dashboard/dist',
    emptyOutDir: true,
    target: 'es2022',
    sourcemap: false,
    cssCodeSplit: false,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: true,
    rollupOptions: {
      output: {
        entryFileNames: 'app.js',
        assetFileNames: 'app.[ext]',
        inlineDynamicImports: true,
      },
    },
  },
  esbuild: { jsx: 'automatic', jsxImportSource: 'preact', legalComments: 'none' },
  server: {
    port: 5173,
    strictPort: true,
    // The server sees its own origin, so that nothing has to be opened for developing.
    proxy: {
      '/api': {
        target: server,
        changeOrigin: true,
        configure: (proxy) => {
          proxy.on('proxyReq', (request) => {
            request.setHeader('origin', server);
            request.setHeader('sec-fetch-site', 'same-origin');
          });
        },
      },
    },
  },
});
