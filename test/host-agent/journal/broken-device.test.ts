/** F27 on a real block device that fails: what the kernel tells is EIO, of writes, of cuts and of syncs. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { Journal } from '../../../host-agent/journal/journal.ts';
import { BrokenDevice } from '../../fixtures/edge-double/broken-device.ts';
import { sampleAttach, sampleFinished, sampleStarted } from '../../fixtures/edge-double/journal-samples.ts';
import { canMount } from '../../fixtures/edge-double/small-disk.ts';

describe.skipIf(!canMount)('F27 a journal on a device that fails', () => {
  let device: BrokenDevice;
  beforeEach(() => {
    device = new BrokenDevice();
  });
  afterEach(() => device.remove());

  test('refuses starts, owes the end of what runs, and has it on the device when it works again', async () => {
    const changes: boolean[] = [];
    const directory = join(device.path, 'journal');
    const journal = await Journal.open(directory, {
      onDegraded: (degraded) => changes.push(degraded),
      retryMs: 10,
    });
    const attach = sampleAttach();
    const running = sampleStarted(attach.sessionId);
    const refused = sampleStarted(attach.sessionId);
    const later = sampleStarted(attach.sessionId);
    await journal.attached(attach);
    expect((await journal.started(running)).ok).toBe(true);
    device.fail();
    await expect(writeFile(join(device.path, 'other'), 'x', { flush: true })).rejects.toThrow('EIO');
    expect(await journal.started(refused)).toMatchObject({ ok: false, code: 'host_degraded' });
    expect(await journal.finished(running, sampleFinished(running, 1, 'x'.repeat(50_000)))).toMatchObject({
      ok: false,
      code: 'host_degraded',
    });
    expect(journal.degraded).toBe(true);

    device.mend();
    await expect.poll(() => journal.degraded).toBe(false);
    expect(changes).toEqual([true, false]);
    expect((await journal.started(later)).ok).toBe(true);
    await journal.close();

    device.restart();
    const reopened = await Journal.open(directory);
    expect(reopened.tornBytes).toBe(0);
    const executions = reopened.session(attach.sessionId)?.executions;
    expect([...(executions?.keys() ?? [])]).toEqual([running.execution_id, later.execution_id]);
    expect(executions?.get(running.execution_id)?.finished?.receiptSeq).toBe(1);
    await reopened.close();
  });

  test('that is lost with it has what was on the device before, and nothing that was refused', async () => {
    const directory = join(device.path, 'journal');
    const journal = await Journal.open(directory);
    const attach = sampleAttach();
    const running = sampleStarted(attach.sessionId);
    await journal.attached(attach);
    await journal.started(running);
    device.fail();
    await journal.finished(running, sampleFinished(running, 1, 'x'.repeat(50_000)));
    expect((await journal.started(sampleStarted(attach.sessionId))).ok).toBe(false);
    await journal.close();

    device.mend();
    device.restart();
    const reopened = await Journal.open(directory);
    const executions = reopened.session(attach.sessionId)?.executions;
    expect([...(executions?.keys() ?? [])]).toEqual([running.execution_id]);
    expect(executions?.get(running.execution_id)?.finished).toBeNull();
    await reopened.close();
  });
});
