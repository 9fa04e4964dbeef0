/** The images that are built on demand only: each has what its name says, in a real sandbox. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { SILENT_LOG } from '../../host-agent/logging/log.ts';
import type { Sandbox } from '../../host-agent/sandbox/port.ts';
import { RunscSandboxes } from '../../host-agent/sandbox/runsc-sandboxes.ts';
import type { BuiltImage } from '../../host-agent/setup/image.ts';
import { type Installation, setUp, setUpImages } from '../../host-agent/setup/setup.ts';
import { silentProgress } from '../../host-agent/setup/step.ts';
import { locations } from '../../scripts/locations.ts';
import { call, file, LIMITS, newSandboxId, python, shell } from '../contract/subject.ts';
import { startRawSandbox } from '../fixtures/raw-sandbox.ts';
import { describeStarted } from '../host-agent/guest/describe-guest.ts';
import { describeNode } from '../host-agent/guest/suite/node.ts';

const BUILD_TIMEOUT_MS = 1_200_000;
const GIB = 1024 ** 3;
const PNG_SIGNATURE = '89504e470d0a1a0a';

let installation: Installation;
let images: BuiltImage[];

const places = locations(process.env);
const imageOf = async (name: string): Promise<BuiltImage> => {
  installation ??= await setUp(places, process.env, silentProgress);
  images ??= await setUpImages(['lean', 'data', 'node', 'full'], places, silentProgress);
  const image = images.find((candidate) => candidate.name === name);
  if (image === undefined) throw new Error(`image ${name} was not built`);
  return image;
};

beforeAll(() => imageOf('node'), BUILD_TIMEOUT_MS);

describeStarted(
  'in gVisor with the node image',
  async () => {
    const image = await imageOf('node');
    return {
      ...(await startRawSandbox({ ...installation, image })),
      programs: '/sandgate',
      work: '/workspace',
    };
  },
  (guest) => describe('the JavaScript kernel', () => describeNode(guest, 'node')),
);

describe('A session', () => {
  let stateDir: string;
  let sandboxes: RunscSandboxes;
  let sandbox: Sandbox | undefined;

  beforeAll(async () => {
    await imageOf('node');
    stateDir = await mkdtemp(join(tmpdir(), 'sandgate-images-'));
    const { runscPath, imagesDir, guestDir } = installation;
    const opened = await RunscSandboxes.open({
      runscPath,
      imagesDir,
      guestDir,
      stateDir,
      cgroupParent: `/sandgate-images-${process.pid}`,
      capacity: 1,
      caps: { ...LIMITS, memory_bytes: 2 * GIB, processes: 512, workspace_bytes: GIB },
      log: SILENT_LOG,
    });
    if (!opened.ok) throw new Error(opened.detail);
    sandboxes = opened.value;
  });
  afterEach(async () => {
    await sandbox?.destroy();
    sandbox = undefined;
  });
  afterAll(async () => {
    await sandboxes.stop();
    await rm(stateDir, { recursive: true, force: true });
  });

  const start = async (name: string): Promise<Sandbox> => {
    const { digest } = await imageOf(name);
    const limits = { ...LIMITS, memory_bytes: GIB, processes: 256, workspace_bytes: GIB };
    const started = await sandboxes.start({
      sandboxId: newSandboxId(),
      imageDigest: digest,
      limits,
      environment: {},
    });
    if (!started.ok) throw new Error(`${started.code}: ${started.detail}`);
    sandbox = started.value;
    return started.value;
  };

  it('with the data image shows figures and tables', async () => {
    const data = await start('data');
    const figure = await python(
      data,
      `import numpy as np, matplotlib.pyplot as plt
x = np.linspace(0, 6, 200)
plt.plot(x, np.sin(x)); plt.title("sine é")
plt.show()
fig, axes = plt.subplots(1, 2)
axes[0].hist(np.random.default_rng(1).normal(size=500)); axes[1].imshow(np.eye(8))
len(plt.get_fignums())`,
      { timeoutMs: 120_000, stdin: null },
    );
    expect(figure).toMatchObject({ status: 'succeeded', value: '1', error: null });
    expect(figure.results.map(({ mime }) => mime)).toEqual(['image/png', 'image/png']);
    for (const [index, { data: base64 }] of figure.results.entries()) {
      const png = Buffer.from(base64, 'base64');
      expect(png.subarray(0, 8).toString('hex')).toBe(PNG_SIGNATURE);
      expect(png.length).toBeGreaterThan(5_000);
      const keptIn = process.env.SANDGATE_KEEP_FIGURES;
      if (keptIn !== undefined) await writeFile(join(keptIn, `figure-${index}.png`), png);
    }
    const table = await python(
      data,
      'import pandas as pd\npd.DataFrame({"a": [1, 2], "é": ["x", None]}).set_index("a")',
      { timeoutMs: 60_000, stdin: null },
    );
    expect(table).toMatchObject({ status: 'succeeded', value: '      é\na      \n1     x\n2  None' });
    expect(table.results.map(({ mime }) => mime)).toEqual(['text/html', 'application/vnd.dataresource+json']);
    expect(table.results[0]?.data).toContain('<table border="1" class="dataframe">');
    expect(JSON.parse(table.results[1]?.data ?? '')).toMatchObject({
      total_rows: 2,
      truncated: false,
      schema: {
        fields: [
          { name: 'a', type: 'integer' },
          { name: 'é', type: 'string' },
        ],
        primaryKey: ['a'],
      },
      data: [
        { a: 1, é: 'x' },
        { a: 2, é: null },
      ],
    });
  });

  it('with the node image runs JavaScript and has no python', async () => {
    const node = await start('node');
    const run = (code: string) => call(node, 'node', { code }, { stdin: null });
    expect(await run("const v = process.versions.node.split('.')[0]; [v, process.cwd()]")).toMatchObject({
      status: 'succeeded',
      exitCode: 0,
      value: "[ '18', '/workspace' ]",
    });
    expect((await run('v')).value).toBe("'18'");
    expect(await call(node, 'node', { code: 'for (;;);' }, { stdin: null, timeoutMs: 300 })).toMatchObject({
      status: 'timeout',
      stateLost: false,
    });
    expect((await run('v')).value).toBe("'18'");
    expect((await python(node, '1', { stdin: null })).error).toMatchObject({
      name: 'InterpreterMissing',
      message: 'the image has no python3',
    });
  });

  it('with the lean image has a shell and files, and says what is missing', async () => {
    const lean = await start('lean');
    expect(
      await shell(lean, 'echo $BASH_VERSION | head -c1; type python3 node', { stdin: null }),
    ).toMatchObject({
      status: 'failed',
      stdout: '5',
    });
    await file(lean, { operation: 'write', path: 'a', content: 'é' });
    expect((await shell(lean, 'cat a', { stdin: null })).stdout).toBe('é');
    for (const [tool, interpreter] of [
      ['python', 'python3'],
      ['node', 'node'],
    ] as const) {
      const missing = await call(lean, tool, { code: '1' }, { stdin: null });
      expect(missing).toMatchObject({
        status: 'failed',
        error: { name: 'InterpreterMissing', message: `the image has no ${interpreter}` },
      });
    }
    expect((await shell(lean, 'echo on', { stdin: null })).stdout).toBe('on\n');
  });

  it.each([
    ['C', 'a.c', '#include <stdio.h>\nint main(void) { puts("hi"); }'],
    ['C++', 'a.cc', '#include <iostream>\nint main() { std::cout << "hi\\n"; }'],
    ['Go', 'a.go', 'package main\nimport "fmt"\nfunc main() { fmt.Println("hi") }'],
    ['Rust', 'a.rs', 'fn main() { println!("hi"); }'],
    ['Java', 'A.java', 'class A { public static void main(String[] a) { System.out.println("hi"); } }'],
    ['Ruby', 'a.rb', 'puts "hi"'],
    ['PHP', 'a.php', '<?php echo "hi\\n";'],
    ['Perl', 'a.pl', 'print "hi\\n";'],
    ['Lua', 'a.lua', 'print("hi")'],
    ['JavaScript', 'a.mjs', 'console.log("hi")'],
    ['Python', 'a.py', 'print("hi")'],
  ])('with the full image builds and runs %s', async (_language, path, content) => {
    const full = await start('full');
    await file(full, { operation: 'write', path, content });
    const ran = await call(full, 'run', { path }, { timeoutMs: 180_000, stdin: null });
    expect(ran).toMatchObject({ status: 'succeeded', stdout: 'hi\n', error: null });
  });

  it('with the full image shows what a compiler says, and its exit code', async () => {
    const full = await start('full');
    await file(full, { operation: 'write', path: 'a.c', content: 'int main(void) { return nothing; }' });
    const ran = await call(full, 'run', { path: 'a.c' }, { timeoutMs: 60_000, stdin: null });
    expect(ran).toMatchObject({ status: 'failed', exitCode: 1, stdout: '' });
    expect(ran.stderr).toMatch(/a\.c:1:25: error: .nothing. undeclared/);
    expect(ran.stderr).toMatch(/\nC: the build failed\n$/);
  });
});
