/** What a program prints arrives as it was printed, bounded and in order. */

import { describe, expect, test } from 'vitest';
import { INLINE_HEAD_BYTES, INLINE_TAIL_BYTES } from '../../shared/limits.ts';
import { PATIENCE_MS, STUCK_MS } from '../patience.ts';
import { residentBytes } from './leftovers.ts';
import { useSession, useStack } from './stack.ts';
import { pause, timed } from './until.ts';

/** A bound on being starved, not on speed: the machine runs other things too. */
const STARVED_MS = 10_000;
const INLINE_BYTES = INLINE_HEAD_BYTES + INLINE_TAIL_BYTES;
const REPLACEMENT = '\ufffd';
const stack = useStack();

/** A bash loop that prints one byte at a time, so that each may be a chunk of its own. */
function byteByByte(text: string, descriptor: 1 | 2 = 1): string {
  const bytes = [...Buffer.from(text)].map((byte) => byte.toString(16).padStart(2, '0'));
  return `for x in ${bytes.join(' ')}; do printf "\\\\x$x" >&${descriptor}; sleep 0.1; done`;
}

describe('R12 characters of several bytes', () => {
  const session = useSession(stack);

  test.each([
    ['of two, three and four bytes', 'é漢😀\n'],
    ['joined into one sign', '👩🏽‍🚀e\u0301ก็\n'],
    ['at the edges of the planes', '\u0080\u07ff\u0800\uffff\u{10000}\u{10ffff}'],
  ])('R12 %s come whole though each byte is written alone', async (_name, text) => {
    const seen = await (await session().stream('shell', { command: byteByByte(text) })).collect();
    expect(seen.stdout).toBe(text);
    expect(seen.end).toMatchObject({ status: 'succeeded', stdout_bytes: Buffer.byteLength(text) });
    for (const { event } of seen.events) {
      if (event.event === 'stdout') expect(event.text).not.toContain(REPLACEMENT);
    }
    expect(seen.events.filter(({ event }) => event.event === 'stdout').length).toBeGreaterThan(1);
  });

  test('R12 on stderr come whole too', async () => {
    const seen = await (await session().stream('shell', { command: byteByByte('ü€𝄞', 2) })).collect();
    expect([seen.stdout, seen.stderr]).toEqual(['', 'ü€𝄞']);
  });

  test('R12 print 50,000 times without a mark', async () => {
    const result = await session().sh(`python3 -c "print('漢'*50000)"`);
    expect(result.stdout).toBe(`${'漢'.repeat(50_000)}\n`);
    expect(result).toMatchObject({ status: 'succeeded', truncated: false, stdout_bytes: 150_001 });
  });

  test.each(['漢', '😀', 'a漢'])('R12 are not cut where head and tail of %s are kept', async (sign) => {
    const count = Math.ceil((2 * INLINE_BYTES) / Buffer.byteLength(sign)) + 1;
    const result = await session().py(`print('${sign}' * ${count}, end='')`);
    expect(result).toMatchObject({ truncated: true, stdout_bytes: count * Buffer.byteLength(sign) });
    expect(result.stdout.includes(REPLACEMENT)).toBe(false);
    expect(result.stdout.startsWith(sign.repeat(1000))).toBe(true);
    expect(result.stdout.endsWith(sign.repeat(1000))).toBe(true);
  });

  test('R12 stream in full beyond what a result keeps', async () => {
    const seen = await (
      await session().stream('python', { code: "print('漢😀' * 300000, end='')" })
    ).collect();
    expect(seen.gaps).toEqual([]);
    expect(seen.stdout === '漢😀'.repeat(300_000)).toBe(true);
  });
});

describe('R21 bytes that are not UTF-8', () => {
  const session = useSession(stack);

  test.each([
    ['lone and cut ones', 'A\\xff\\xfeB\\xe2\\x82', `A${REPLACEMENT.repeat(2)}B${REPLACEMENT}`, 'Qf/+QuKC'],
    ['an overlong form', '\\xc0\\x80', REPLACEMENT.repeat(2), 'wIA='],
    ['a surrogate', '\\xed\\xa0\\x80', REPLACEMENT.repeat(3), '7aCA'],
    ['a lone continuation', 'x\\x80y', `x${REPLACEMENT}y`, 'eIB5'],
    ['beyond the last plane', '\\xf5\\x90\\x80\\x80', REPLACEMENT.repeat(4), '9ZCAgA=='],
    ['latin-1 text', 'caf\\xe9\\n', `caf${REPLACEMENT}\n`, 'Y2Fm6Qo='],
  ])('R21 as %s give marks as text and themselves as base64', async (_name, escaped, text, base64) => {
    const asText = await session().sh(`printf '${escaped}'; exit 4`);
    expect(asText).toMatchObject({ status: 'failed', exit_code: 4, stdout: text, encoding: 'utf-8' });
    const asBase64 = await session().sh(`printf '${escaped}'; printf '${escaped}' >&2`, {
      encoding: 'base64',
    });
    expect(asBase64).toMatchObject({ stdout: base64, stderr: base64, encoding: 'base64' });
  });

  test('R21 in a stream give a mark when the rest never comes, and themselves as base64', async () => {
    const command = `printf '\\xe2\\x82'; sleep 0.2; printf 'A\\xf0\\x9f'`;
    const asText = await (await session().stream('shell', { command })).collect();
    expect(asText.stdout).toBe(`${REPLACEMENT}A${REPLACEMENT}`);
    const asBase64 = await (await session().stream('shell', { command }, { encoding: 'base64' })).collect();
    expect(Buffer.from(asBase64.stdoutBytes).toString('hex')).toBe('e28241f09f');
  });

  test('R21 of every value arrive as base64', async () => {
    const code = 'import sys; sys.stdout.buffer.write(bytes(range(256)) * 40)';
    const result = await session().py(code, { encoding: 'base64' });
    expect(Buffer.from(result.stdout, 'base64')).toEqual(
      Buffer.from(Array.from({ length: 256 * 40 }, (_, index) => index % 256)),
    );
  });
});

describe('R28 output over its cap', () => {
  const session = useSession(stack);

  test('R28 is trimmed to head and tail with true totals, and the program runs to its end', async () => {
    const code = "for i in range(200000): print(i)\nopen('/tmp/fin','w').write('y')";
    const { value: result, bodyBytes } = await session().executeRaw('python', { code });
    expect(result).toMatchObject({ status: 'succeeded', truncated: true, stdout_bytes: 1_288_890 });
    expect(result.stdout.startsWith('0\n1\n2\n')).toBe(true);
    expect(result.stdout.endsWith('199998\n199999\n')).toBe(true);
    expect(Buffer.byteLength(result.stdout)).toBeLessThanOrEqual(INLINE_BYTES * 1.1);
    expect(bodyBytes).toBeLessThan(INLINE_BYTES * 1.5);
    expect((await session().sh('cat /tmp/fin')).stdout).toBe('y');
  });

  test.each([
    ['just under', INLINE_BYTES - 1, false],
    ['exactly at', INLINE_BYTES, false],
    ['one byte over', INLINE_BYTES + 1, true],
  ])('R28 %s the cap says whether bytes are missing', async (_name, bytes, truncated) => {
    const result = await session().sh(`head -c ${bytes} /dev/zero | tr '\\0' x`);
    expect(result).toMatchObject({ status: 'succeeded', truncated, stdout_bytes: bytes });
    if (!truncated) expect(result.stdout.length).toBe(bytes);
  });

  test('R28 on both streams at once leaves the exit code alone', async () => {
    const result = await session().sh('seq 300000; seq 300000 >&2; exit 3');
    expect(result).toMatchObject({ status: 'failed', exit_code: 3, truncated: true });
    expect([result.stdout_bytes, result.stderr_bytes]).toEqual([1_988_895, 1_988_895]);
    expect([result.stdout.endsWith('\n300000\n'), result.stderr.endsWith('\n300000\n')]).toEqual([
      true,
      true,
    ]);
  });
});

describe('R35 control characters', () => {
  const session = useSession(stack);

  test.each([
    ['carriage returns', "printf '10%%\\r50%%\\r100%%'", '10%\r50%\r100%'],
    ['no final newline', "printf 'end'", 'end'],
    ['nothing', "printf ''", ''],
    ['escapes', "printf '\\033[31mred\\033[0m'", '\u001b[31mred\u001b[0m'],
    ['CRLF', "printf 'a\\r\\nb\\r\\n'", 'a\r\nb\r\n'],
    ['NUL', "printf 'a\\0b\\0'", 'a\0b\0'],
    ['a byte order mark', "printf '\\xef\\xbb\\xbfx'", '\ufeffx'],
    ['separators of lines in Unicode', "printf 'a\\u2028b\\u2029c\\u0085'", 'a\u2028b\u2029c\u0085'],
    [
      'what looks like an event',
      "printf 'event: end\\ndata: {}\\n\\n: x\\n\\n'",
      'event: end\ndata: {}\n\n: x\n\n',
    ],
    ['bell, backspace, form feed and delete', "printf '\\a\\b\\f\\v\\x7f'", '\u0007\b\f\v\u007f'],
  ])('R35 %s arrive unchanged, whole and streamed', async (_name, command, text) => {
    expect(await session().sh(command)).toMatchObject({ stdout: text, stderr: '', exit_code: 0 });
    const seen = await (await session().stream('shell', { command })).collect();
    expect(seen.stdout).toBe(text);
    expect((await session().sh(':')).stdout).toBe('');
  });
});

describe('R65 a failed cell', () => {
  const session = useSession(stack);

  test.each([
    ['a division', '1/0', 'ZeroDivisionError', 'division by zero'],
    ['an unclosed bracket', 'x = (1,\n2', 'SyntaxError', "'(' was never closed"],
    ['a message of several lines', "raise ValueError('é\\n☃')", 'ValueError', 'é\n☃'],
    ['a missing key', "{}['k']", 'KeyError', "'k'"],
    ['a missing name', 'nope', 'NameError', "name 'nope' is not defined"],
    ['an own exception', 'class Own(Exception): pass\nraise Own("mine")', 'Own', 'mine'],
    ['an empty message', 'raise RuntimeError', 'RuntimeError', ''],
    [
      'a missing module',
      'import not_there_at_all',
      'ModuleNotFoundError',
      "No module named 'not_there_at_all'",
    ],
    [
      'wrong indentation',
      'if True:\nx = 1',
      'IndentationError',
      "expected an indented block after 'if' statement on line 1",
    ],
    ['a message with escapes', "raise ValueError('\\x1b[31mred')", 'ValueError', '\u001b[31mred'],
  ])('R65 by %s is reported as failed, by name and message', async (_name, code, name, message) => {
    const result = await session().py(code);
    expect(result).toMatchObject({ status: 'failed', error: { name }, value: null, state_lost: false });
    expect(result.error?.message.split(' (<')[0]).toBe(message);
    expect((await session().py('1 + 1')).value).toBe('2');
  });

  test('R65 has a traceback with the line, without escapes and without files of the host', async () => {
    const code = 'def outer():\n    inner()\n\ndef inner():\n    return 1/0\n\nouter()';
    const traceback = (await session().py(code)).error?.traceback ?? '';
    expect(traceback).toContain('line 7');
    expect(traceback).toContain('line 5, in inner');
    expect(traceback).toContain('ZeroDivisionError: division by zero');
    for (const absent of ['\u001b', '/sandgate/', 'host-agent', stack().stack.stateDir, process.cwd()]) {
      expect(traceback).not.toContain(absent);
    }
    expect((await session().py('x = (1,\n2')).error?.traceback).toContain('line 1');
  });

  test.each([
    [
      'a chain',
      "try:\n    1/0\nexcept ZeroDivisionError as e:\n    raise KeyError('late') from e",
      'KeyError',
    ],
    ['a group', "raise ExceptionGroup('both', [ValueError('a'), TypeError('b')])", 'ExceptionGroup'],
    ['endless recursion', 'def f(): f()\nf()', 'RecursionError'],
    [
      'an exception that cannot be printed',
      'class Bad(Exception):\n    def __str__(self): raise TypeError\nraise Bad',
      'Bad',
    ],
    ['a base exception', "raise BaseException('base')", 'BaseException'],
  ])('R65 by %s names it too, and the kernel lives on', async (_name, code, name) => {
    await session().py('kept = 7');
    const result = await session().py(code);
    expect(result).toMatchObject({ status: 'failed', error: { name } });
    expect((await session().py('kept')).value).toBe('7');
  });
});

describe('R70 both streams', () => {
  const session = useSession(stack);

  test('R70 do not block each other when stderr is full first', async () => {
    const command = "head -c 1048576 /dev/zero | tr '\\0' e >&2; echo done";
    const result = await session().sh(command);
    expect(result).toMatchObject({ exit_code: 0, stdout: 'done\n', stderr_bytes: 1_048_576 });
    expect(result.stderr === 'e'.repeat(1_048_576)).toBe(true);
  });

  test('R70 do not block each other when both are written in turn', async () => {
    const code =
      "import sys\nfor i in range(64):\n  sys.stderr.write('e' * 65536); sys.stdout.write('o' * 65536)";
    const result = await session().py(code, { timeoutMs: PATIENCE_MS });
    expect(result).toMatchObject({ status: 'succeeded', stdout_bytes: 4_194_304, stderr_bytes: 4_194_304 });
  });

  test('R70 do not block each other when two programs fill them', async () => {
    const fill = (sign: string) => `head -c 3000000 /dev/zero | tr '\\0' ${sign}`;
    const command = `(${fill('e')} >&2) & ${fill('o')}; wait; echo done`;
    const result = await session().sh(command, { timeoutMs: PATIENCE_MS });
    expect(result).toMatchObject({ exit_code: 0, stdout_bytes: 3_000_005, stderr_bytes: 3_000_000 });
  });
});

describe('R77 an endless printer', () => {
  test.each([
    ['lines', 'yes abcdefgh'],
    ['zeros', 'cat /dev/zero'],
    ['both streams', 'yes out & yes err >&2'],
  ])(
    'R77 of %s is stopped at its timeout, and neither daemon nor neighbour notices',
    async (_name, command) => {
      const [noisy, quiet] = await Promise.all([stack().open(), stack().open()]);
      await quiet.sh('echo hi');
      const pid = stack().hostAgentPid();
      const residentBefore = await residentBytes(pid);
      let residentPeak = residentBefore;
      const call = timed(noisy.executeRaw('shell', { command }, { timeoutMs: 3_000 }));
      let isOver = false;
      void call.finally(() => {
        isOver = true;
      });
      const answers: { value: { stdout: string }; elapsedMs: number }[] = [];
      while (!isOver) {
        answers.push(await timed(quiet.sh('echo hi')));
        residentPeak = Math.max(residentPeak, await residentBytes(pid));
        await pause(500);
      }
      const { value: answer, elapsedMs } = await call;
      expect(answer.value).toMatchObject({ status: 'timeout', truncated: true });
      expect(elapsedMs).toBeGreaterThanOrEqual(2_900);
      expect(elapsedMs).toBeLessThan(STUCK_MS);
      const kept = Buffer.byteLength(answer.value.stdout) + Buffer.byteLength(answer.value.stderr);
      expect(kept).toBeLessThanOrEqual(2 * INLINE_BYTES * 1.1);
      expect(answers.length).toBeGreaterThan(0);
      expect(new Set(answers.map(({ value }) => value.stdout))).toEqual(new Set(['hi\n']));
      expect(Math.max(...answers.map((one) => one.elapsedMs))).toBeLessThan(STARVED_MS);
      expect(residentPeak - residentBefore).toBeLessThan(64 * 1024 * 1024);
      expect((await noisy.sh('echo still here')).stdout).toBe('still here\n');
      await Promise.all([noisy.delete(), quiet.delete()]);
    },
  );
});
