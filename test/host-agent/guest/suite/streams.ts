/** Bytes: order, backpressure, input, and what is dropped. */
import { expect, it } from 'vitest';
import { PATIENCE_MS } from '../../../patience.ts';
import {
  bash,
  ENVIRONMENT,
  eventually,
  type GuestUnderTest,
  must,
  Output,
  startBash,
} from '../guest-under-test.ts';

const WINDOW_BYTES = 1024 * 1024;

export function describeStreams(guest: () => GuestUnderTest): void {
  it('carries bytes as they are', async () => {
    const { output, channel } = await startBash(
      guest(),
      `printf '10%%\\r50%%\\r100%%\\033[31m\\0\\377\\xfeend'`,
    );
    await channel.exited;
    expect(output.bytes('stdout').toString('latin1')).toBe('10%\r50%\r100%\x1b[31m\0\xff\xfeend');
    must(await channel.release(PATIENCE_MS));
  });

  it('reads both streams at once (R70)', async () => {
    const { stdout, stderr, exitCode } = await bash(
      guest(),
      `head -c 1048576 /dev/zero | tr '\\0' e >&2; echo done`,
    );
    expect({ stdout, exitCode, bytes: stderr.length }).toEqual({
      stdout: 'done\n',
      exitCode: 0,
      bytes: 1048576,
    });
  });

  it('delivers a line while the program waits', async () => {
    const { channel, output } = await startBash(guest(), 'echo first; read answer; echo "got $answer"');
    await eventually('the first line', () => output.text() === 'first\n');
    must(await channel.writeStdin(Buffer.from('yes\n')));
    must(await channel.exited);
    expect(output.text()).toBe('first\ngot yes\n');
    must(await channel.release(PATIENCE_MS));
  });

  it('puts the lines of a print loop together', async () => {
    const { channel, output } = await startBash(guest(), 'for ((i = 0; i < 20000; i++)); do echo $i; done');
    must(await channel.exited);
    expect(output.text().endsWith('\n19999\n')).toBe(true);
    expect(output.chunks.length).toBeLessThan(2000);
    must(await channel.release(PATIENCE_MS));
  });

  it('lets a program wait when nobody takes its output, and go on afterwards', async () => {
    const taken = new Output();
    const gate = Promise.withResolvers<void>();
    const channel = must(
      await guest().link.spawn({
        argv: ['bash', '-c', 'head -c 4000000 /dev/zero; echo end >&2'],
        cwd: '/',
        environment: ENVIRONMENT,
        onOutput: async (stream, bytes) => {
          taken.sink(stream, bytes);
          await gate.promise;
        },
      }),
    );
    await eventually('the window is full', () => taken.bytes('stdout').length === WINDOW_BYTES);
    must(await guest().link.ping(PATIENCE_MS));
    expect((await bash(guest(), 'echo others go on')).stdout).toBe('others go on\n');
    expect(taken.bytes('stdout').length).toBe(WINDOW_BYTES);
    expect(channel.hasExited).toBe(false);
    gate.resolve();
    must(await channel.exited);
    expect(taken.bytes('stdout').length).toBe(4000000);
    expect(taken.text('stderr')).toBe('end\n');
    must(await channel.release(PATIENCE_MS));
  });

  it('feeds standard input to its end', async () => {
    const { channel, output } = await startBash(guest(), 'wc -c');
    const bytes = Buffer.alloc(1_000_000, 'x');
    must(await channel.writeStdin(bytes));
    channel.closeStdin();
    must(await channel.exited);
    expect(output.text().trim()).toBe('1000000');
    must(await channel.release(PATIENCE_MS));
  });

  it('holds back input that a program does not read, and lets go of it when the program ends', async () => {
    const { channel } = await startBash(guest(), 'sleep 1000');
    let settled = false;
    const written = channel.writeStdin(Buffer.alloc(5_000_000)).finally(() => {
      settled = true;
    });
    must(await guest().link.ping(PATIENCE_MS));
    expect(settled).toBe(false);
    expect(await channel.writeStdin(Buffer.alloc(5_000_000))).toMatchObject({ failure: { reason: 'limit' } });
    must(await channel.killSinceMark(PATIENCE_MS));
    /* What nobody reads any more is taken until the end of the program is known: then the write has not failed. */
    await written;
    must(await channel.exited);
    expect(await channel.writeStdin(Buffer.alloc(1))).toMatchObject({
      failure: { reason: 'channel_ended' },
    });
    must(await channel.release(PATIENCE_MS));
  });

  it('takes input for a program that closed it', async () => {
    const { channel } = await startBash(guest(), 'exec 0<&-; read -t 0.1 x; sleep 0.3');
    must(await channel.writeStdin(Buffer.alloc(1_000_000)));
    must(await channel.exited);
    must(await channel.release(PATIENCE_MS));
  });

  it('drops output while muted, also what was on its way', async () => {
    const { work } = guest();
    const { channel, output } = await startBash(
      guest(),
      `echo one; read a; head -c 500000 /dev/zero; touch ${work}/muted-done; read b; echo three`,
    );
    await eventually('the first line', () => output.text() === 'one\n');
    channel.mute();
    must(await channel.writeStdin(Buffer.from('\n')));
    await eventually(
      'the muted part',
      async () => (await bash(guest(), `test -e ${work}/muted-done`)).exitCode === 0,
    );
    channel.unmute();
    must(await channel.writeStdin(Buffer.from('\n')));
    must(await channel.exited);
    expect(output.text()).toBe('one\nthree\n');
    must(await channel.release(PATIENCE_MS));
  });

  it('sends what was printed before a control message before it, also to a slow reader', async () => {
    const events: string[] = [];
    let bytes = 0;
    const channel = must(
      await guest().link.spawn({
        argv: [
          'bash',
          '-c',
          'head -c 700000 /dev/zero; printf x >&2; printf M >&199; echo tail; printf N >&199',
        ],
        cwd: '/',
        environment: ENVIRONMENT,
        control: true,
        onOutput: async (stream, part) => {
          bytes += part.byteLength;
          if (stream === 'stderr') events.push('stderr');
          await guest().link.ping(PATIENCE_MS);
        },
        onControl: (part) => events.push(`${Buffer.from(part).toString()} after ${bytes}`),
      }),
    );
    must(await channel.exited);
    expect(events[0]).toBe('stderr');
    expect(events.slice(1).join()).toMatch(
      /^M after 700001,N after 700006$|^M after 700006,N after 700006$|^MN after 700006$/,
    );
    must(await channel.release(PATIENCE_MS));
  });

  it('ends a call whose program took back its own output', async () => {
    const { exitCode } = await bash(
      guest(),
      'echo lost; timeout 1 head -c 5 /proc/self/fd/1 > /dev/null; exit 4',
    );
    expect(exitCode).toBe(4);
  });
}
