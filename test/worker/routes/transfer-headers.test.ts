import { expect, test } from 'vitest';
import { newId } from '../../../shared/ids.ts';
import type { TransferRequest } from '../../../shared/transfer.ts';
import type { OwnSession } from '../../../worker/calls/own-session.ts';
import { writeTransfer } from '../../../worker/calls/session-transfer.ts';
import { FILE_HEADERS } from '../../../worker/objects/session/port.ts';

test('a command in any script reaches the session as it was given', async () => {
  const asked: TransferRequest = {
    operation: 'process_start',
    process_id: newId('prc'),
    command: 'echo "grüß dich, 漢字 😀"\ntrue',
    cwd: '/workspace/ä',
    environment: { GREETING: '漢' },
  };
  let header: string | null = null;
  const session: Pick<OwnSession, 'caller' | 'call' | 'toolPolicy'> = {
    toolPolicy: null,
    caller: { tenant: 'acme', subject: 'алиса' },
    call: (method) =>
      method({
        fetch: async (request: Request) => {
          header = request.headers.get(FILE_HEADERS.request);
          return Response.json({ bytes: 0, sha256: null, created: true, facts: null, entries: 0 });
        },
      } as never),
  };
  await writeTransfer({ ...session, sessionId: '' }, asked, null);
  expect(header).toMatch(/^[\x20-\x7e]+$/);
  expect(JSON.parse(header ?? '')).toEqual(asked);
});
