/** What runs inside a sandbox, and how each piece is made from the sources in this folder. */
import type { Artifact } from '../setup/compiled-folder.ts';

const STRICT = ['-Os', '-s', '-std=c11', '-D_GNU_SOURCE', '-Wall', '-Wextra', '-Werror'] as const;

export const GUEST_ARTIFACTS: readonly Artifact[] = [
  { source: 'supervisor.c', target: 'supervisor', compile: ['-static', ...STRICT] },
  { source: 'files.c', target: 'files', compile: ['-static', ...STRICT] },
  { source: 'egress.c', target: 'egress', compile: ['-static', ...STRICT] },
  { source: 'terminal.c', target: 'terminal', compile: ['-static', ...STRICT] },
  {
    source: 'shell.c',
    target: 'shell.so',
    compile: ['-shared', '-fPIC', '-nostdlib', ...STRICT],
  },
  {
    source: 'node_random.c',
    target: 'kernels/node-random.node',
    compile: ['-shared', '-fPIC', '-nostdlib', ...STRICT],
  },
  ...[
    'python.py',
    'python_control.py',
    'python_describe.py',
    'python_display.py',
    'python_streams.py',
    'python_table.py',
    'python_tools.py',
    'node.mjs',
    'node-control.mjs',
    'node-describe.mjs',
    'node-evaluator.mjs',
    'node-source.mjs',
    'node-streams.mjs',
    'node-random.mjs',
    'node-tools.mjs',
  ].map((name) => ({ source: `kernels/${name}`, target: `kernels/${name}`, compile: null })),
];
