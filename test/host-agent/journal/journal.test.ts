import { mkdtemp, readFile, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { Journal } from '../../../host-agent/journal/journal.ts';
import { MAX_KEPT_EXECUTIONS } from '../../../host-agent/journal/state.ts';
import { GRANT_MEMORY_S } from '../../../shared/limits.ts';
import { sampleAttach, sampleFinished, sampleStarted } from '../../fixtures/edge-double/journal-samples.ts';

let directory: string;
let path: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'sandgate-journal-'));
  path = join(directory, 'journal');
});
afterEach(() => rm(directory, { recursive: true }));

async function withJournal<T>(use: (journal: Journal) => Promise<T>, nowS?: number): Promise<T> {
  const journal = await Journal.open(directory, nowS === undefined ? {} : { nowS: () => nowS });
  try {
    return await use(journal);
  } finally {
    await journal.close();
  }
}

test('a journal writes one start of an execution and one of a grant, also of two at once', async () => {
  const attach = sampleAttach();
  const started = sampleStarted(attach.sessionId);
  const other = sampleStarted(attach.sessionId);
  await withJournal(async (journal) => {
    await journal.attached(attach);
    const answers = await Promise.all([journal.started(started), journal.started(started)]);
    expect(answers.map(({ ok }) => ok)).toEqual([true, false]);
    for (const repeated of [
      { ...started, jti: other.jti },
      { ...other, jti: started.jti },
    ]) {
      expect(await journal.started(repeated)).toMatchObject({ ok: false, code: 'grant_replayed' });
    }
    expect(await journal.started(other)).toMatchObject({ ok: true });
  });
});

describe('a journal that is opened again', () => {
  test('knows the session, what started and how it ended, with the bytes that were not delivered', async () => {
    const attach = sampleAttach();
    const first = sampleStarted(attach.sessionId, 5);
    const second = sampleStarted(attach.sessionId, 6);
    await withJournal(async (journal) => {
      await journal.attached(attach);
      await journal.started(first);
      await journal.finished(first, sampleFinished(first, 1, 'kept bytes'));
      await journal.started(second);
    });
    await withJournal(async (journal) => {
      const session = journal.session(attach.sessionId);
      expect(session).toMatchObject({ epoch: 1, seq: 6, attachment: 'attached', attachJti: attach.jti });
      expect(session?.chain).toEqual({ seq: 1, sha256: '1'.padStart(64, '0') });
      const ended = session?.executions.get(first.execution_id);
      expect(Buffer.from(ended?.finished?.frames[0]?.payload ?? []).toString()).toBe('kept bytes');
      expect(session?.executions.get(second.execution_id)?.finished).toBeNull();
    });
  });

  test('lets go of the bytes of an execution that was acknowledged, but not of its receipt', async () => {
    const attach = sampleAttach();
    const started = sampleStarted(attach.sessionId);
    const output = 'x'.repeat(100_000);
    await withJournal(async (journal) => {
      await journal.attached(attach);
      await journal.started(started);
      await journal.finished(started, sampleFinished(started, 1, output));
      journal.acknowledged(attach.sessionId, started.execution_id);
    });
    expect((await stat(path)).size).toBeGreaterThan(output.length);
    await withJournal(async () => {});
    expect((await stat(path)).size).toBeLessThan(5_000);
    await withJournal(async (journal) => {
      const execution = journal.session(attach.sessionId)?.executions.get(started.execution_id);
      expect(execution?.acknowledged).toBe(true);
      expect(execution?.finished?.receiptSeq).toBe(1);
    });
  });

  test('keeps no more receipts of a session than it needs', async () => {
    const attach = sampleAttach();
    await withJournal(async (journal) => {
      await journal.attached(attach);
      for (let count = 1; count <= MAX_KEPT_EXECUTIONS + 10; count += 1) {
        const started = sampleStarted(attach.sessionId, count);
        await journal.started(started);
        await journal.finished(started, sampleFinished(started, count));
        journal.acknowledged(attach.sessionId, started.execution_id);
      }
      const session = journal.session(attach.sessionId);
      expect(session?.executions.size).toBe(MAX_KEPT_EXECUTIONS);
      expect(session?.chain.seq).toBe(MAX_KEPT_EXECUTIONS + 10);
    });
  });

  test('A43 remembers epoch and number of a session that is gone, for as long as grants are remembered', async () => {
    const attach = { ...sampleAttach(), epoch: 3, seq: 9 };
    const atS = 1_000_000;
    await withJournal(async (journal) => {
      await journal.attached(attach);
      journal.detached(attach.sessionId, 3, true);
    }, atS);
    await withJournal(
      async (journal) => {
        expect(journal.session(attach.sessionId)).toMatchObject({ epoch: 3, seq: 9, attachment: 'gone' });
      },
      atS + GRANT_MEMORY_S - 1,
    );
    await withJournal(
      async (journal) => {
        expect(journal.session(attach.sessionId)).toBeUndefined();
      },
      atS + GRANT_MEMORY_S + 1,
    );
  });

  test('continues the chain of a session where the edge says that it stands', async () => {
    const attach = sampleAttach();
    const started = sampleStarted(attach.sessionId);
    await withJournal(async (journal) => {
      await journal.attached(attach);
      await journal.started(started);
      await journal.finished(started, sampleFinished(started, 1));
      const chain = { seq: 7, sha256: 'c'.repeat(64) };
      await journal.attached({ ...attach, epoch: 2, chain });
      expect(journal.session(attach.sessionId)?.chain).toEqual(chain);
    });
  });

  test('continues there also where the edge took less than was signed, and after every opening', async () => {
    const attach = sampleAttach();
    const accepted = sampleStarted(attach.sessionId, 2);
    const refused = sampleStarted(attach.sessionId, 3);
    const chain = { seq: 1, sha256: '1'.padStart(64, '0') };
    await withJournal(async (journal) => {
      await journal.attached(attach);
      for (const [index, started] of [accepted, refused].entries()) {
        await journal.started(started);
        await journal.finished(started, sampleFinished(started, index + 1));
      }
      await journal.attached({ ...attach, epoch: 2, seq: 4, chain });
      expect(journal.session(attach.sessionId)?.chain).toEqual(chain);
    });
    for (let opening = 1; opening <= 3; opening += 1) {
      await withJournal(async (journal) => {
        expect(journal.session(attach.sessionId)?.chain).toEqual(chain);
      });
    }
    await withJournal(async (journal) => {
      const next = { ...sampleStarted(attach.sessionId, 5), epoch: 2 };
      await journal.started(next);
      await journal.finished(next, sampleFinished(next, 2));
    });
    await withJournal(async (journal) => {
      expect(journal.session(attach.sessionId)?.chain.seq).toBe(2);
    });
  });

  test('F28 torn at each byte of its last entries has each entry whole or not at all', async () => {
    // Some thousand openings: on memory, where syncing costs nothing.
    await rm(directory, { recursive: true });
    directory = await mkdtemp(join('/dev/shm', 'sandgate-journal-'));
    path = join(directory, 'journal');
    const attach = sampleAttach();
    const first = sampleStarted(attach.sessionId);
    const second = sampleStarted(attach.sessionId);
    const ends: number[] = [];
    await withJournal(async (journal) => {
      await journal.attached(attach);
      ends.push((await stat(path)).size);
      await journal.started(first);
      ends.push((await stat(path)).size);
      await journal.finished(first, sampleFinished(first, 1, 'output'));
      ends.push((await stat(path)).size);
      await journal.started(second);
      ends.push((await stat(path)).size);
    });
    const bytes = await readFile(path);
    const [attachedEnd = 0, startedEnd = 0, finishedEnd = 0, secondEnd = 0] = ends;
    for (let length = attachedEnd; length < bytes.length; length += 1) {
      await writeFile(path, bytes);
      await truncate(path, length);
      await withJournal(async (journal) => {
        const executions = journal.session(attach.sessionId)?.executions;
        expect(executions?.has(first.execution_id)).toBe(length >= startedEnd);
        const finished = executions?.get(first.execution_id)?.finished ?? null;
        expect(finished !== null).toBe(length >= finishedEnd);
        expect(executions?.has(second.execution_id)).toBe(length >= secondEnd);
        expect(journal.tornBytes > 0).toBe(!ends.includes(length));
      });
    }
  });

  test('F28 goes on after a torn tail', async () => {
    const attach = sampleAttach();
    const started = sampleStarted(attach.sessionId);
    await withJournal((journal) => journal.attached(attach));
    await writeFile(path, Buffer.concat([await readFile(path), Buffer.from([0, 0, 1, 0, 9])]));
    await withJournal(async (journal) => {
      expect(journal.tornBytes).toBe(5);
      await journal.started(started);
    });
    await withJournal(async (journal) => {
      expect(journal.tornBytes).toBe(0);
      expect(journal.session(attach.sessionId)?.executions.has(started.execution_id)).toBe(true);
    });
  });
});

describe('a journal that grows', () => {
  test('is rewritten without what was delivered while it is in use, and loses nothing of what was not', async () => {
    await rm(directory, { recursive: true });
    directory = await mkdtemp(join('/dev/shm', 'sandgate-journal-'));
    path = join(directory, 'journal');
    const attach = sampleAttach();
    const open = sampleStarted(attach.sessionId);
    const output = 'x'.repeat(2_000_000);
    await withJournal(async (journal) => {
      await journal.attached(attach);
      await journal.started(open);
      for (let count = 1; count <= 40; count += 1) {
        const started = sampleStarted(attach.sessionId, count);
        await journal.started(started);
        await journal.finished(started, sampleFinished(started, count, output));
        if (count < 40) journal.acknowledged(attach.sessionId, started.execution_id);
      }
    });
    expect((await stat(path)).size).toBeLessThan(40 * 1024 * 1024);
    await withJournal(async (journal) => {
      const session = journal.session(attach.sessionId);
      expect(session?.executions.get(open.execution_id)?.finished).toBeNull();
      const ended = [...(session?.executions.values() ?? [])].filter(({ finished }) => finished !== null);
      expect(ended).toHaveLength(40);
      const undelivered = ended.filter(({ acknowledged }) => !acknowledged);
      expect(undelivered.map(({ finished }) => finished?.frames[0]?.payload.length)).toEqual([output.length]);
    });
  });
});

describe('appends', () => {
  test('that come together are all on disk when they are told to be', async () => {
    const attaches = Array.from({ length: 200 }, () => sampleAttach());
    await withJournal(async (journal) => {
      const outcomes = await Promise.all(attaches.map((attach) => journal.attached(attach)));
      expect(outcomes.every(({ ok }) => ok)).toBe(true);
      const onDisk = await readFile(path, 'latin1');
      for (const { sessionId } of attaches) expect(onDisk).toContain(sessionId);
    });
  });
});
