// Makes dist/ from src/. The names carry a hash of the content, so that a browser may keep them for ever.
import { readFile, readdir, rm, writeFile } from "node:fs/promises";
import { basename } from "node:path";
import { build } from "esbuild";

await rm("dist", { recursive: true, force: true });
const { metafile } = await build({
  entryPoints: { page: "src/main.ts" },
  outdir: "dist",
  entryNames: "[name]-[hash]",
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2023"],
  charset: "utf8",
  legalComments: "none", // dist/licenses.txt has them whole
  metafile: true,
});

const output = (extension) => basename(Object.keys(metafile.outputs).find((name) => name.endsWith(extension)));
const page = await readFile("src/index.html", "utf8");
await writeFile("dist/index.html", page.replace("{{script}}", output(".js")).replace("{{style}}", output(".css")));

const packages = new Set(
  Object.keys(metafile.inputs).flatMap((path) => path.match(/^node_modules\/((?:@[^/]+\/)?[^/]+)\//)?.[1] ?? []),
);
const texts = [];
for (const name of [...packages].sort()) {
  const folder = `node_modules/${name}`;
  const { version, license } = JSON.parse(await readFile(`${folder}/package.json`, "utf8"));
  const file = (await readdir(folder)).find((entry) => /^licen[cs]e/i.test(entry));
  if (!file) throw new Error(`${name}: no licence file in its package`);
  const text = (await readFile(`${folder}/${file}`, "utf8")).trim();
  texts.push(`${name} ${version} (${license})\n\n${text}\n`);
}
await writeFile("dist/licenses.txt", texts.join(`\n${"-".repeat(80)}\n\n`));
