import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Sandbox } from '../../host-agent/sandbox/port.ts';
import { file, type GetSubject, shell, startSandbox } from './subject.ts';

export function describeFiles(subject: GetSubject): void {
  describe('file', () => {
    let sandbox: Sandbox;
    beforeAll(async () => {
      sandbox = await startSandbox(subject());
    });
    afterAll(() => sandbox.destroy());

    it('reads back the bytes that were written, text as text', async () => {
      const content = '\ufeffé漢😀\r\n\0end';
      const written = await file(sandbox, { operation: 'write', path: 'text.txt', content });
      expect(written).toMatchObject({
        status: 'succeeded',
        value: null,
        structured: { operation: 'write', path: 'text.txt', size: Buffer.byteLength(content), created: true },
      });
      const read = await file(sandbox, { operation: 'read', path: '/workspace/text.txt' });
      expect(read).toMatchObject({ status: 'succeeded', value: content });
      expect(read.structured).toMatchObject({ encoding: 'utf-8', content, truncated: false, offset: 0 });
    });

    it('gives bytes that are not UTF-8 as base64 and no value', async () => {
      const content = Buffer.from([0, 255, 254, 10, 128]).toString('base64');
      await file(sandbox, { operation: 'write', path: 'bytes', content, encoding: 'base64' });
      const read = await file(sandbox, { operation: 'read', path: 'bytes' });
      expect(read).toMatchObject({ value: null, structured: { encoding: 'base64', content, size: 5 } });
      const asText = await file(sandbox, { operation: 'read', path: 'bytes', encoding: 'utf-8' });
      expect(asText).toMatchObject({ status: 'failed', error: { name: 'NotUtf8' }, structured: null });
    });

    it('sees what the shell wrote, and the shell what it wrote', async () => {
      await shell(sandbox, 'echo from shell > /workspace/shared');
      expect((await file(sandbox, { operation: 'read', path: 'shared' })).value).toBe('from shell\n');
      await file(sandbox, { operation: 'write', path: '/tmp/shared', content: 'from file' });
      expect((await shell(sandbox, 'cat /tmp/shared')).stdout).toBe('from file');
    });

    it('R16: takes any name as a name', async () => {
      const names = ['日本 語 😀.txt', 'a#b?c%41.txt', 'q\'"`$(id).txt', '-rf', 'tab\there'];
      for (const name of names) {
        await file(sandbox, { operation: 'write', path: `/tmp/names/${name}`, content: name });
        expect((await file(sandbox, { operation: 'read', path: `/tmp/names/${name}` })).value).toBe(name);
      }
      const listed = await file(sandbox, { operation: 'list', path: '/tmp/names' });
      expect(listed.structured).toMatchObject({ next_cursor: null });
      expect(JSON.stringify(listed.structured)).toContain('日本 語 😀.txt');
      for (const name of names) {
        expect(listed.structured).toMatchObject({
          entries: expect.arrayContaining([expect.objectContaining({ name, type: 'file' })]),
        });
      }
    });

    it('reads a piece, cut at a character where it is text', async () => {
      await file(sandbox, { operation: 'write', path: 'piece', content: 'aé漢😀' });
      const piece = await file(sandbox, { operation: 'read', path: 'piece', length: 5 });
      expect(piece.structured).toMatchObject({ content: 'aé', length: 3, truncated: true, size: 10 });
      const rest = await file(sandbox, { operation: 'read', path: 'piece', offset: 3 });
      expect(rest.structured).toMatchObject({ content: '漢😀', offset: 3, truncated: false });
    });

    it('moves, stats and deletes', async () => {
      await file(sandbox, { operation: 'write', path: 'one', content: '123' });
      expect((await file(sandbox, { operation: 'move', path: 'one', destination: 'two' })).status).toBe(
        'succeeded',
      );
      const stat = await file(sandbox, { operation: 'stat', path: 'two' });
      expect(stat.structured).toMatchObject({ type: 'file', size: 3, link: false });
      expect((await file(sandbox, { operation: 'delete', path: 'two' })).status).toBe('succeeded');
      expect(await file(sandbox, { operation: 'stat', path: 'two' })).toMatchObject({
        status: 'failed',
        error: { name: 'FileNotFound' },
      });
    });

    it.each([
      { operation: 'read', path: 'absent' },
      { operation: 'list', path: '/absent' },
      { operation: 'delete', path: 'absent' },
      { operation: 'move', path: 'absent', destination: 'elsewhere' },
    ])('fails with a name when there is nothing to $operation', async (request) => {
      expect(await file(sandbox, request)).toMatchObject({
        status: 'failed',
        error: { name: 'FileNotFound' },
        structured: null,
        value: null,
      });
    });

    it('fails with a name when the arguments do not fit', async () => {
      expect(await file(sandbox, { operation: 'chown', path: 'x' })).toMatchObject({
        status: 'failed',
        error: { name: 'InvalidArguments' },
      });
      const notBase64 = { operation: 'write', path: 'x', content: '!', encoding: 'base64' };
      expect(await file(sandbox, notBase64)).toMatchObject({ error: { name: 'InvalidArgument' } });
    });
  });
}
