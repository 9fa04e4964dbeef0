/** The transfers of one sandbox, from grant to end, on a wire that the test holds. */
import { hash } from 'node:crypto';
import { beforeEach, describe, expect, test } from 'vitest';
import { SILENT_LOG } from '../../../host-agent/logging/log.ts';
import type { SandboxFiles } from '../../../host-agent/sandbox/files/port.ts';
import { Transfers, type TransfersOptions } from '../../../host-agent/transfers/transfers.ts';
import { failure } from '../../../shared/errors.ts';
import type { TransferDown, TransferUp } from '../../../shared/frames.ts';
import type { GrantClaims } from '../../../shared/grant.ts';
import { newId } from '../../../shared/ids.ts';
import { type FileRequest, MAX_TRANSFERS, TRANSFER_WINDOW_BYTES } from '../../../shared/transfer.ts';
import { FakeFiles } from '../../fixtures/fake-files.ts';
import { FakeSandboxFiles } from '../../fixtures/fake-sandbox-files.ts';
import { NO_PROGRAMS } from '../../fixtures/no-programs.ts';
import { PATIENCE_MS } from '../../patience.ts';

const EPOCH = 3;
const READ = { if_match: null, if_none_match: null, range: null, if_range: null, head: false } as const;

class Wire {
  readonly frames: { frame: TransferUp; payload: Uint8Array }[] = [];
  isUp = true;
  #wake: (() => void)[] = [];

  sendTransfer(frame: TransferUp, payload: Uint8Array = new Uint8Array(0)): boolean {
    if (this.isUp) this.frames.push({ frame, payload: Uint8Array.from(payload) });
    for (const wake of this.#wake.splice(0)) wake();
    return this.isUp;
  }

  async of<Type extends TransferUp['type']>(
    id: string,
    type: Type,
  ): Promise<Extract<TransferUp, { type: Type }>> {
    for (;;) {
      for (const { frame } of this.frames) {
        if (frame.transfer_id === id && isOf(frame, type)) return frame;
      }
      await new Promise<void>((resolve) => this.#wake.push(resolve));
    }
  }

  bytes(id: string): Buffer {
    const data = this.frames.filter(({ frame }) => frame.transfer_id === id && frame.type === 'file_data');
    return Buffer.concat(data.map(({ payload }) => payload));
  }
}

function isOf<Type extends TransferUp['type']>(
  frame: TransferUp,
  type: Type,
): frame is Extract<TransferUp, { type: Type }> {
  return frame.type === type;
}

let files: FakeFiles;
let wire: Wire;
let transfers: Transfers;

function make(more: Partial<TransfersOptions & { files: SandboxFiles }> = {}): void {
  files = new FakeFiles();
  wire = new Wire();
  transfers = new Transfers({
    sessionId: 'ses',
    epoch: EPOCH,
    sandbox: { files: more.files ?? new FakeSandboxFiles(files), programs: NO_PROGRAMS },
    wire,
    log: SILENT_LOG,
    ...more,
  });
}
beforeEach(() => make());

function claims(more: Partial<GrantClaims> = {}): GrantClaims {
  return {
    iss: 'edge',
    aud: `host:${newId('hst')}`,
    sub: 'alice',
    tenant: 'acme',
    sid: 'ses',
    epoch: EPOCH,
    seq: 1,
    act: 'file',
    exec: null,
    tool: null,
    tool_version: null,
    relay: null,
    stdin: null,
    args_sha256: '0'.repeat(64),
    image: `sha256:${'0'.repeat(64)}`,
    limits: { cpus: 1, memory_bytes: 1, processes: 1, workspace_bytes: 1, tmp_bytes: 1, timeout_ms: 1 },
    egress: 'none',
    jti: newId('jti'),
    iat: Math.floor(Date.now() / 1000),
    exp: Math.floor(Date.now() / 1000) + 60,
    ...more,
  };
}

function begin(request: FileRequest, grant = claims()): string {
  const id = newId('trf');
  const payload = Buffer.from(JSON.stringify({ transfer_id: id, request }));
  expect(transfers.begin(grant, payload)).toBeUndefined();
  return id;
}

type WithoutPlace<Frame> = Frame extends unknown ? Omit<Frame, 'epoch' | 'transfer_id'> : never;

function down(id: string, frame: WithoutPlace<TransferDown>, payload = Buffer.alloc(0)): boolean {
  return transfers.receive({ ...frame, epoch: EPOCH, transfer_id: id }, payload);
}

const path = (text: string) => Buffer.from(text).toString('base64');
const reading = (text: string, more: object = {}): FileRequest => ({
  operation: 'read',
  path: path(text),
  ...READ,
  ...more,
});
const writing = (text: string, more: object = {}): FileRequest => ({
  operation: 'write',
  path: path(text),
  if_match: null,
  if_none_match: null,
  mode: null,
  sha256: null,
  ...more,
});

test('a path is what the grant says that it is held to, whatever is asked', async () => {
  files.put('in/f', 'hello');
  files.put('out/f', 'hello');
  const constraints = [{ argument: '/path', required: true, path_prefixes: ['/workspace/in'] }];
  for (const outside of ['out/f', 'in/../out/f', '/workspace/out/f']) {
    const refused = begin(reading(outside), claims({ constraints }));
    expect(await wire.of(refused, 'file_failed')).toMatchObject({ code: 'policy_refused' });
  }
  const id = begin(reading('in/f'), claims({ constraints }));
  expect(await wire.of(id, 'file_done')).toBeDefined();
});

describe('a download', () => {
  test('says what it is, gives its bytes and its end', async () => {
    files.put('f', 'hello');
    const id = begin(reading('f'));
    expect(await wire.of(id, 'file_done')).toMatchObject({ result: { bytes: 5 } });
    expect(wire.frames[0]?.frame).toMatchObject({
      type: 'file_head',
      head: { answer: 'whole', length: 5, offset: 0, facts: { size: 5 } },
    });
    expect(wire.bytes(id).toString()).toBe('hello');
  });

  test('sends no more than the window until the edge has taken some', async () => {
    files.put('f', Buffer.alloc(2 * TRANSFER_WINDOW_BYTES, 'x'));
    const id = begin(reading('f'));
    await until(() => wire.bytes(id).length === TRANSFER_WINDOW_BYTES);
    expect(down(id, { type: 'file_taken', bytes: 1000 })).toBe(true);
    await until(() => wire.bytes(id).length === TRANSFER_WINDOW_BYTES + 1000);
    expect(down(id, { type: 'file_taken', bytes: TRANSFER_WINDOW_BYTES })).toBe(true);
    await wire.of(id, 'file_done');
    expect(wire.bytes(id).length).toBe(2 * TRANSFER_WINDOW_BYTES);
  });

  test('whose edge takes what was never sent breaks the protocol', async () => {
    files.put('f', Buffer.alloc(2 * TRANSFER_WINDOW_BYTES));
    const id = begin(reading('f'));
    await until(() => wire.bytes(id).length === TRANSFER_WINDOW_BYTES);
    expect(down(id, { type: 'file_taken', bytes: TRANSFER_WINDOW_BYTES + 1 })).toBe(false);
  });

  test('that the edge cancels, or whose link is lost, ends and gives its place back', async () => {
    files.put('f', Buffer.alloc(2 * TRANSFER_WINDOW_BYTES));
    const cancelled = begin(reading('f'));
    await until(() => wire.bytes(cancelled).length === TRANSFER_WINDOW_BYTES);
    expect(down(cancelled, { type: 'file_cancel' })).toBe(true);
    expect(await wire.of(cancelled, 'file_failed')).toMatchObject({ code: 'transfer_failed' });
    const lost = begin(reading('f'));
    await until(() => wire.bytes(lost).length === TRANSFER_WINDOW_BYTES);
    wire.isUp = false;
    transfers.linkDown();
    await transfers.end();
    expect(wire.frames.some(({ frame }) => frame.transfer_id === lost && frame.type === 'file_failed')).toBe(
      false,
    );
  });

  test('that moves nothing for too long is ended', async () => {
    make({ stallMs: 200 });
    files.put('f', Buffer.alloc(2 * TRANSFER_WINDOW_BYTES));
    const id = begin(reading('f'));
    expect(await wire.of(id, 'file_failed')).toMatchObject({ code: 'transfer_failed' });
  });

  test('of a range that lies outside says how long the file is', async () => {
    files.put('f', 'hello');
    const id = begin(reading('f', { range: { first: 5, last: null } }));
    expect(await wire.of(id, 'file_failed')).toMatchObject({ code: 'range_not_satisfiable', size: 5 });
  });
});

describe('an upload', () => {
  test('asks for bytes, takes them, and says what it wrote', async () => {
    const id = begin(writing('new'));
    await wire.of(id, 'file_head');
    expect(down(id, { type: 'file_data', offset: 0 }, Buffer.from('hel'))).toBe(true);
    expect(down(id, { type: 'file_data', offset: 3 }, Buffer.from('lo'))).toBe(true);
    expect(files.get('new')).toBeUndefined();
    expect(down(id, { type: 'file_end', bytes: 5 })).toBe(true);
    expect(await wire.of(id, 'file_done')).toMatchObject({
      result: { bytes: 5, created: true, sha256: hash('sha256', 'hello') },
    });
    expect(Buffer.from(files.get('new') ?? []).toString()).toBe('hello');
  });

  test('tells how much was taken, so that the edge sends on', async () => {
    const id = begin(writing('new'));
    await wire.of(id, 'file_head');
    expect(down(id, { type: 'file_data', offset: 0 }, Buffer.alloc(TRANSFER_WINDOW_BYTES))).toBe(true);
    expect(await wire.of(id, 'file_taken')).toMatchObject({ bytes: TRANSFER_WINDOW_BYTES });
    expect(down(id, { type: 'file_data', offset: TRANSFER_WINDOW_BYTES }, Buffer.alloc(9))).toBe(true);
    down(id, { type: 'file_end', bytes: TRANSFER_WINDOW_BYTES + 9 });
    expect(await wire.of(id, 'file_done')).toMatchObject({ result: { bytes: TRANSFER_WINDOW_BYTES + 9 } });
  });

  test.each([
    ['leaves a hole', { type: 'file_data', offset: 1 } as const, 1],
    ['sends more than the window', { type: 'file_data', offset: 0 } as const, TRANSFER_WINDOW_BYTES + 1],
    ['ends with another number of bytes', { type: 'file_end', bytes: 1 } as const, 0],
  ])('whose edge %s breaks the protocol', async (_, frame, bytes) => {
    const id = begin(writing('new'));
    await wire.of(id, 'file_head');
    expect(down(id, frame, Buffer.alloc(bytes))).toBe(false);
  });

  test('of other bytes than were announced replaces nothing', async () => {
    files.put('f', 'old');
    const id = begin(writing('f', { sha256: hash('sha256', 'new') }));
    await wire.of(id, 'file_head');
    down(id, { type: 'file_data', offset: 0 }, Buffer.from('nex'));
    down(id, { type: 'file_end', bytes: 3 });
    expect(await wire.of(id, 'file_failed')).toMatchObject({ code: 'digest_mismatch' });
    expect(Buffer.from(files.get('f') ?? []).toString()).toBe('old');
  });

  test('that is cut replaces nothing', async () => {
    files.put('f', 'old');
    const id = begin(writing('f'));
    await wire.of(id, 'file_head');
    down(id, { type: 'file_data', offset: 0 }, Buffer.from('new'));
    down(id, { type: 'file_cancel' });
    expect(await wire.of(id, 'file_failed')).toMatchObject({ code: 'transfer_failed' });
    expect(Buffer.from(files.get('f') ?? []).toString()).toBe('old');
  });

  test('for a new file where there is one is refused before its bytes', async () => {
    files.put('f', 'old');
    const id = begin(writing('f', { if_none_match: '*' }));
    expect(await wire.of(id, 'file_failed')).toMatchObject({ code: 'precondition_failed' });
    expect(wire.frames.some(({ frame }) => frame.type === 'file_head')).toBe(false);
  });
});

describe('a listing', () => {
  test('has names as text, and as bytes where they are none', async () => {
    files.put('d/a', '1');
    const id = begin({ operation: 'list', path: path('d'), cursor: 0, limit: 10 });
    await wire.of(id, 'file_done');
    expect(JSON.parse(wire.bytes(id).toString())).toMatchObject({
      entries: [{ name: 'a', type: 'file', size: 1, mode: '0644', modified_at: '1970-01-01T00:00:00.000Z' }],
      next_cursor: null,
    });
  });
});

describe('a grant', () => {
  test('begins one transfer only', () => {
    files.put('f', 'x');
    const grant = claims();
    begin(reading('f'), grant);
    const again = Buffer.from(JSON.stringify({ transfer_id: newId('trf'), request: reading('f') }));
    expect(transfers.begin(grant, again)).toMatchObject({ code: 'grant_replayed' });
  });

  test('beyond those that can be remembered fails by the name of that, and not as a repeated one', async () => {
    for (let count = 0; count < 8_192; count += 1) begin(reading('f'));
    const failed = await wire.of(begin(reading('f')), 'file_failed');
    expect(failed).toMatchObject({
      code: 'too_many_transfers',
      detail: expect.stringContaining('life of a grant'),
    });
  });

  test.each(['', 'nonsense', '{}', JSON.stringify({ transfer_id: 'trf_x', request: reading('f') })])(
    'with the payload %j is refused',
    (payload) => {
      expect(transfers.begin(claims(), Buffer.from(payload))).toMatchObject({ code: 'invalid_request' });
    },
  );

  test('of another act than the operation is refused: a grant for files starts no program', () => {
    const start = {
      operation: 'process_start',
      process_id: newId('prc'),
      command: 'id',
      cwd: null,
      environment: {},
    };
    const attach = {
      operation: 'terminal_attach',
      terminal_id: newId('trm'),
      create: true,
      size: null,
      after: null,
    };
    for (const [request, act] of [
      [start, 'file'],
      [start, 'terminal'],
      [attach, 'process'],
      [reading('f'), 'terminal'],
    ] as const) {
      const payload = Buffer.from(JSON.stringify({ transfer_id: newId('trf'), request }));
      expect(transfers.begin(claims({ act }), payload)).toMatchObject({ code: 'invalid_request' });
    }
    const payload = Buffer.from(JSON.stringify({ transfer_id: newId('trf'), request: attach }));
    expect(transfers.begin(claims({ act: 'terminal' }), payload)).toBeUndefined();
  });

  test('beyond the number of transfers at a time is told so, and one more fits when one ends', async () => {
    files.put('f', Buffer.alloc(2 * TRANSFER_WINDOW_BYTES));
    const ids = Array.from({ length: MAX_TRANSFERS }, () => begin(reading('f')));
    const beyond = begin(reading('f'));
    expect(await wire.of(beyond, 'file_failed')).toMatchObject({ code: 'too_many_transfers' });
    const [first = ''] = ids;
    down(first, { type: 'file_cancel' });
    await wire.of(first, 'file_failed');
    const next = begin(reading('f', { head: true }));
    await wire.of(next, 'file_done');
  });

  test('after the end of the sandbox begins nothing', async () => {
    await transfers.end();
    const id = begin(reading('f'));
    expect(await wire.of(id, 'file_failed')).toMatchObject({ code: 'transfer_failed' });
  });
});

test('R10: an archive whose sparse files look longer than anybody may be sent is cut off there', async () => {
  const piece = Buffer.alloc(64 * 1024);
  let made = 0;
  const sparse: SandboxFiles = Object.assign(new FakeSandboxFiles(new FakeFiles()), {
    async archive({ signal, onBegin, onBytes }: Parameters<SandboxFiles['archive']>[0]) {
      onBegin();
      for (; !signal.aborted; made += piece.length) await onBytes(piece);
      return failure('transfer_failed', 'it was cancelled');
    },
  });
  const archiveAllowanceBytes = 5 * piece.length;
  make({ files: sparse, archiveAllowanceBytes });
  const id = begin({ operation: 'archive', path: Buffer.from('.').toString('base64') });
  const failed = await wire.of(id, 'file_failed');
  expect(failed).toMatchObject({ code: 'archive_refused' });
  expect(failed.detail).toContain(`at most ${archiveAllowanceBytes + 2} bytes`);
  expect(wire.bytes(id)).toHaveLength(5 * piece.length);
  expect(made).toBe(6 * piece.length);
});

test('what comes for a transfer that has ended, or of another epoch, changes nothing', () => {
  const id = newId('trf');
  expect(down(id, { type: 'file_data', offset: 7 }, Buffer.from('x'))).toBe(true);
  expect(down(id, { type: 'file_taken', bytes: 7 })).toBe(true);
  files.put('f', 'x');
  const live = begin(writing('f'));
  const other = { type: 'file_data', epoch: EPOCH - 1, transfer_id: live, offset: 9 } as const;
  expect(transfers.receive(other, Buffer.from('x'))).toBe(true);
});

async function until(condition: () => boolean): Promise<void> {
  const deadline = performance.now() + PATIENCE_MS;
  while (!condition()) {
    if (performance.now() > deadline) throw new Error('did not happen');
    await new Promise((resolve) => setImmediate(resolve));
  }
}
