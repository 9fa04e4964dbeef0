import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { OperatorClient } from '../../../scripts/development/operator-client.ts';
import { requireFreePort } from '../../../scripts/development/port.ts';
import { standing } from '../../../scripts/development/readiness.ts';
import { SupervisedChild } from '../../../scripts/development/supervised-child.ts';
import { temporaryFolder } from '../temporary-folder.ts';

test('a stack that does not come back says what the edge answers, and of each child whether it runs and what it said', async () => {
  const dir = temporaryFolder();
  const program = join(dir, 'program.cjs');
  writeFileSync(program, "console.log('no room'); process.exit(7);");
  const child = new SupervisedChild({
    name: 'host agent',
    args: [program],
    environment: { PATH: process.env.PATH },
    input: '',
    logPath: join(dir, 'program.log'),
    parentDeathSignal: 'KILL',
    stopSignal: 'SIGTERM',
    onMessage: () => {},
    onRestart: () => {},
  });
  onTestFinished(() => child.stop(1_000));
  const nobody = new OperatorClient(`http://127.0.0.1:${await requireFreePort(0)}`, 'none');
  child.start();
  await child.exited;
  const said = await standing(nobody, [child]);
  expect(said).toMatch(
    /^the edge does not answer: .+; host agent does not run, was started .+, said: no room$/,
  );
});
