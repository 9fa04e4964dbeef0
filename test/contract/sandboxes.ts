/** The contract of `Sandboxes`: one suite, run on the real thing and on the fake. */
import { afterAll, beforeAll, describe } from 'vitest';
import { describeFiles } from './file-contract.ts';
import { describeLifetime } from './lifetime-contract.ts';
import { describePython } from './python-contract.ts';
import { describeShell } from './shell-contract.ts';
import { describeStopping } from './stop-contract.ts';
import type { GetSubject, Subject } from './subject.ts';
import { describeTransfers } from './transfer-contract.ts';

const SET_UP_TIMEOUT_MS = 600_000;

/** `makeSubject` fails where the thing under test cannot be made: nothing is skipped. */
export function describeSandboxes(
  name: string,
  makeSubject: () => Promise<Subject & AsyncDisposable>,
  more: (subject: GetSubject) => void = () => undefined,
): void {
  describe(name, () => {
    let made: (Subject & AsyncDisposable) | undefined;
    const subject = (): Subject => {
      if (made === undefined) throw new Error(`${name} could not be made`);
      return made;
    };
    beforeAll(async () => {
      made = await makeSubject();
    }, SET_UP_TIMEOUT_MS);
    afterAll(async () => {
      await made?.[Symbol.asyncDispose]();
    });
    describePython(subject);
    describeShell(subject);
    describeStopping(subject);
    describeFiles(subject);
    describeTransfers(subject);
    describeLifetime(subject);
    more(subject);
  });
}
