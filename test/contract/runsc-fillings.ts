/**
 * Programs that fill files, descriptors, buffers, output and addresses, each beside a victim. The ids are those of the list
 * of resource attacks, not of the user cases.
 */
import { describe, expect, it } from 'vitest';
import type { Sandbox } from '../../host-agent/sandbox/port.ts';
import { PATIENCE_MS } from '../patience.ts';
import { errnoOf, lives, met, withVictim } from './attack.ts';
import { type CallOptions, type CallResult, file, type GetSubject, python, shell } from './subject.ts';

const MIB = 1024 * 1024;
const FLOOD_TIMEOUT_MS = 300_000;

export function describeFillings(subject: GetSubject): void {
  describe('resource attacks on files, descriptors, buffers, output and network', () => {
    const { attack } = withVictim(subject);

    it('R7: a million files cost memory of the sandbox alone, and end as oom where that ends', {
      timeout: 6 * PATIENCE_MS,
    }, async () => {
      await attack({ memory_bytes: 96 * MIB, workspace_bytes: 512 * MIB }, async (attacker) => {
        const make = (count: number): string =>
          [
            'import os, shutil',
            'os.makedirs("/workspace/many")',
            'os.chdir("/workspace/many")',
            `for at in range(${count}): os.close(os.open(f"{at:x}", os.O_CREAT | os.O_WRONLY))`,
            'count = len(os.listdir("."))',
            'os.chdir("/workspace")',
            'shutil.rmtree("many")',
            'count',
          ].join('\n');
        expect(await python(attacker, make(2_000), { timeoutMs: 60_000 })).toMatchObject({ value: '2000' });
        const filled = await python(attacker, make(1_000_000), { timeoutMs: 4 * PATIENCE_MS });
        expect(filled).toMatchObject({ status: 'oom', stateLost: true });
        expect(filled.usage.peakMemoryBytes).toBeLessThanOrEqual(97 * MIB);
      });
    });

    it.each([
      ['R8', '/tmp'],
      ['R9', '/workspace'],
      ['R11', '/dev/shm'],
    ])('%s: a full %s says ENOSPC, and the sandbox lives', async (_id, folder) => {
      await attack({ workspace_bytes: 64 * MIB, tmp_bytes: 64 * MIB }, async (attacker) => {
        const fill = errnoOf(
          `with open("${folder}/big", "wb", 0) as big:\n  while True: big.write(bytes(1 << 20))`,
        );
        expect(await met(attacker, fill)).toBe("'ENOSPC'");
        expect((await shell(attacker, `stat -c %s ${folder}/big; rm ${folder}/big`)).stdout).toBe(
          `${64 * MIB}\n`,
        );
        await lives(attacker);
      });
    });

    it('R10: a file of a terabyte without content is refused', async () => {
      await attack({}, async (attacker) => {
        const sparse = 'import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n';
        const body = 'open("/workspace/sparse", "w").truncate(1 << 40)';
        expect(await met(attacker, sparse + errnoOf(body))).toBe("'EFBIG'");
        await lives(attacker);
      });
    });

    it('R11: shared memory counts as memory of the sandbox: together they are oom', async () => {
      await attack({ memory_bytes: 128 * MIB }, async (attacker) => {
        await shell(attacker, 'head -c 60M /dev/zero > /dev/shm/held');
        const taken = await python(attacker, 'hog = bytearray(b"x" * (110 << 20))');
        expect(taken.status).toBe('oom');
      });
    });

    it('R12: ten thousand open files meet EMFILE', async () => {
      await attack({}, async (attacker) => {
        const body = 'held = []\nwhile len(held) < 10000: held.append(os.open("/dev/null", os.O_RDONLY))';
        const opened = `${errnoOf(body)}\nfor fd in held: os.close(fd)\nmet = met, 500 < len(held) < 1024`;
        expect(await met(attacker, opened)).toBe("('EMFILE', True)");
        await lives(attacker);
      });
    });

    it('R13: full pipes and sockets are memory of the sandbox', async () => {
      await attack({ memory_bytes: 128 * MIB }, async (attacker) => {
        const hoard = [
          'import socket',
          'pairs = []',
          'while True:',
          '  left, right = socket.socketpair()',
          '  left.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24); left.setblocking(False)',
          '  pairs.append((left, right))',
          '  try:',
          '    while True: left.send(bytes(1 << 16))',
          '  except BlockingIOError: pass',
        ].join('\n');
        const hoarded = await python(attacker, hoard, { timeoutMs: 60_000 });
        expect(hoarded).toMatchObject({ status: 'oom', stateLost: true });
        expect(hoarded.usage.peakMemoryBytes).toBeLessThanOrEqual(129 * MIB);
      });
    });

    const flood = async (
      attacker: Sandbox,
      command: string,
      callOptions: CallOptions = {},
    ): Promise<CallResult> => {
      const before = process.memoryUsage().rss;
      const flooded = await shell(attacker, command, { timeoutMs: FLOOD_TIMEOUT_MS, ...callOptions });
      const kept = flooded.chunks.reduce((sum, { bytes }) => sum + bytes.length, 0);
      // What this test itself keeps of the output is no fault of the host.
      expect(process.memoryUsage().rss - before - 2 * kept).toBeLessThan(128 * MIB);
      return flooded;
    };

    it.each([
      ['R14', 50, 'stdout', 'head -c 50M /dev/zero | tr "\\0" "\\n"'],
      ['R15', 50, 'stderr', 'head -c 50M /dev/zero | tr "\\0" "\\n" >&2'],
      ['R16', 100, 'stdout', 'head -c 100M /dev/zero'],
    ] as const)(
      '%s: a flood of %i MiB of %s arrives whole and as it is (%s)',
      { timeout: FLOOD_TIMEOUT_MS },
      async (_id, sizeMib, stream, command) => {
        await attack({}, async (attacker) => {
          const { status, chunks } = await flood(attacker, command);
          expect(status).toBe('succeeded');
          const bytes = chunks.reduce(
            (sum, chunk) => sum + (chunk.stream === stream ? chunk.bytes.length : 0),
            0,
          );
          expect(bytes).toBe(sizeMib * MIB);
        });
      },
    );

    it('R17: bytes that are no text pass as they are', async () => {
      await attack({}, async (attacker) => {
        const { chunks } = await shell(attacker, "printf '\\000\\377\\300\\033]0;owned\\007\\033[2J'");
        const bytes = Buffer.concat(chunks.map((chunk) => chunk.bytes));
        expect(bytes.toString('latin1')).toBe('\0\xff\xc0\x1b]0;owned\x07\x1b[2J');
      });
    });

    it('R18: many short lines come in few pieces', async () => {
      await attack({}, async (attacker) => {
        const lines = 20_000;
        const printed = await python(attacker, `for at in range(${lines}): print(at)`, { timeoutMs: 60_000 });
        expect(printed.stdout.split('\n').length).toBe(lines + 1);
        expect(printed.chunks.length).toBeLessThan(lines / 2);
      });
    });

    it.each([
      [
        'R19',
        'nothing can be sent out',
        'import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)',
        's.sendto(bytes(1000), ("192.0.2.1", 9))',
      ],
      [
        'R20',
        'connections are as many as open files',
        'import socket\nserver = socket.create_server(("127.0.0.1", 0), backlog=4096)\nheld = []',
        'while len(held) < 10000: held.append(socket.create_connection(server.getsockname(), 5))',
      ],
      ['R21', 'no name server can be asked', 'import socket', 'socket.getaddrinfo("example.com", 80)'],
    ])('%s: %s', async (_id, _what, setUp, body) => {
      await attack({}, async (attacker) => {
        const code = [
          'met = None',
          setUp,
          'try:',
          `  ${body}`,
          'except OSError as error: met = type(error).__name__',
          'met is not None',
        ].join('\n');
        const tried = await python(attacker, code, { timeoutMs: 60_000 });
        expect(tried).toMatchObject({ status: 'succeeded', value: 'True' });
        await python(attacker, 'for s in globals().get("held", []): s.close()');
        await lives(attacker);
      });
    });

    it('R22: memory is not locked, and asking for huge pages takes none', async () => {
      await attack({}, async (attacker) => {
        const lock = [
          'import ctypes, errno, mmap',
          'libc = ctypes.CDLL(None, use_errno=True)',
          'size = 1 << 26',
          'area = mmap.mmap(-1, size)',
          'address = ctypes.addressof(ctypes.c_char.from_buffer(area))',
          'locked = libc.mlock(ctypes.c_void_p(address), size)',
          'met = locked, errno.errorcode[ctypes.get_errno()]',
        ].join('\n');
        expect(await met(attacker, lock)).toBe("(-1, 'ENOMEM')");
        const huge = errnoOf(
          'import mmap\nmmap.mmap(-1, 1 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000).write(bytes(1))',
        );
        expect(['null', "'ENOMEM'", "'EINVAL'"]).toContain(String(await met(attacker, huge)));
        expect((await shell(attacker, 'true')).usage.peakMemoryBytes).toBeLessThan(256 * MIB);
        await lives(attacker);
      });
    });

    it('R23: a deep tree of long names can be deleted, and goes with its sandbox', async () => {
      await attack({}, async (attacker) => {
        const dig = [
          'import os',
          'def dig(top):',
          '  os.makedirs(top); os.chdir(top)',
          '  for at in range(1500):',
          '    os.mkdir("d" * 255); os.chdir("d" * 255)',
          '  os.chdir("/workspace")',
          'dig("/workspace/deep"); dig("/workspace/kept")',
          'met = True',
        ].join('\n');
        expect(await met(attacker, dig)).toBe('True');
        const deleted = await file(attacker, {
          operation: 'delete',
          path: '/workspace/deep',
          recursive: true,
        });
        expect(deleted.status).toBe('succeeded');
        expect((await shell(attacker, 'ls /workspace')).stdout).toBe('kept\n');
      });
    });
  });
}
