// The build of the dashboard: files with stable names, so that the program can embed them and CI can compare them.
import { defineConfig } from 'vite';

const server = process.env['ICECORE_SERVER'] ?? 'http://127.0.0.1:7431';

export default defineConfig({
  // No source maps: the shipped files are the committed ones.
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
    // The server sees its own origin, so that development needs no CORS exception.
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
