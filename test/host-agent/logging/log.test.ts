import { expect, test } from 'vitest';
import { allowed } from '../../../host-agent/logging/log.ts';

test('only listed fields are written, whatever an object carries', () => {
  const fields = { event: 'x', session_id: 's', token: 'secret', arguments: { code: 'secret' }, detail: 'd' };
  expect(allowed(fields)).toEqual({ event: 'x', session_id: 's', detail: 'd' });
});

test('a text is cut before it fills the log', () => {
  expect(String(allowed({ event: 'x', detail: 'y'.repeat(100_000) }).detail)).toHaveLength(1024);
});
