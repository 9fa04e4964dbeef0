/** F27 on a real file system that is really full: a tmpfs of a few pages. */
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { Journal } from '../../../host-agent/journal/journal.ts';
import { sampleAttach, sampleFinished, sampleStarted } from '../../fixtures/edge-double/journal-samples.ts';
import { canMount, SmallDisk } from '../../fixtures/edge-double/small-disk.ts';

describe.skipIf(!canMount)('F27 a journal on a full disk', () => {
  let disk: SmallDisk;
  beforeEach(() => {
    disk = new SmallDisk();
  });
  afterEach(() => disk.remove());

  test('refuses starts, takes the end of what runs for later, and works again when there is room', async () => {
    const changes: boolean[] = [];
    const journal = await Journal.open(join(disk.path, 'journal'), {
      onDegraded: (degraded) => changes.push(degraded),
      retryMs: 10,
    });
    const attach = sampleAttach();
    const running = sampleStarted(attach.sessionId);
    const late = sampleStarted(attach.sessionId);
    await journal.attached(attach);
    await journal.started(running);
    disk.fill();
    const refused = await journal.finished(running, sampleFinished(running, 1, 'x'.repeat(100_000)));
    expect(refused).toMatchObject({ ok: false, code: 'host_degraded' });
    expect(await journal.started(late)).toMatchObject({ ok: false, code: 'host_degraded' });
    expect(journal.degraded).toBe(true);

    disk.empty();
    await expect.poll(() => journal.degraded).toBe(false);
    expect(changes).toEqual([true, false]);
    expect((await journal.started(late)).ok).toBe(true);
    await journal.close();

    const reopened = await Journal.open(join(disk.path, 'journal'));
    expect(reopened.tornBytes).toBe(0);
    const executions = reopened.session(attach.sessionId)?.executions;
    expect(executions?.get(running.execution_id)?.finished?.receiptSeq).toBe(1);
    expect(executions?.has(late.execution_id)).toBe(true);
    await reopened.close();
  });
});
