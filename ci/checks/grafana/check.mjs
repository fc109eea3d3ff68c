// SPDX-License-Identifier: MIT OR Apache-2.0
// Checks a dashboard by Grafana's own types, of the package @grafana/schema: node check.mjs DASHBOARD, where that package is installed. JSON schemas are made of
// the types of the dashboard and of each kind of panel, and a key that they do not have is an error.
import Ajv from 'ajv';
import fs from 'node:fs';
import path from 'node:path';
import { createGenerator } from 'ts-json-schema-generator';

const types = path.resolve('node_modules/@grafana/schema/dist/types/raw');
const validators = new Map();

/** The validator of a type in a file of types; null where the file does not have the type. */
function validator(file, type) {
  const key = `${file} ${type}`;
  if (!validators.has(key)) {
    const full = path.join(types, file);
    const exists = new RegExp(`export interface ${type}\\b`).test(fs.readFileSync(full, 'utf8'));
    const options = { path: full, type, additionalProperties: false, skipTypeCheck: true, expose: 'all' };
    const schema = exists ? createGenerator(options).createSchema(type) : null;
    validators.set(key, schema && new Ajv({ allErrors: true, strict: false }).compile(schema));
  }
  return validators.get(key);
}

const wrong = [];

function check(what, file, type, value) {
  const valid = validator(file, type);
  if (!valid) {
    if (Object.keys(value).length > 0) wrong.push(`${what}: Grafana has no ${type} for it`);
    return;
  }
  if (valid(value)) return;
  for (const error of valid.errors) {
    const more = error.params.additionalProperty ?? error.params.allowedValues ?? '';
    wrong.push(`${what}: ${error.instancePath || 'the whole'} ${error.message} ${more}`);
  }
}

const dashboard = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));
check('the dashboard', 'dashboard/x/types.gen.d.ts', 'Dashboard', dashboard);
let panels = 0;
for (const panel of dashboard.panels.filter((panel) => panel.type !== 'row')) {
  const file = `composable/${panel.type}/panelcfg/x/types.gen.d.ts`;
  if (!fs.existsSync(path.join(types, file))) {
    wrong.push(`panel ${panel.title}: Grafana has no kind ${panel.type}`);
    continue;
  }
  check(`panel ${panel.title}, options`, file, 'Options', panel.options);
  check(`panel ${panel.title}, fields`, file, 'FieldConfig', panel.fieldConfig.defaults.custom ?? {});
  panels += 1;
}
if (panels === 0) wrong.push('there are no panels');
if (wrong.length > 0) {
  console.error(wrong.join('\n'));
  process.exit(1);
}
const { version } = JSON.parse(fs.readFileSync('node_modules/@grafana/schema/package.json', 'utf8'));
console.log(`the dashboard and its ${panels} panels are valid by the types of Grafana ${version}`);
