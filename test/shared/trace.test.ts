import { expect, test } from 'vitest';
import { newId } from '../../shared/ids.ts';
import { requestIdOfTrace, traceIdOf } from '../../shared/trace.ts';

const TRACE_ID = '0af7651916cd43dd8448eb211c80319c';

test('a trace gives its id to the request, and the request gives it back', () => {
  const requestId = requestIdOfTrace(`00-${TRACE_ID}-b7ad6b7169203331-01`);
  expect(requestId).toBe('req_CvdlGRbNQ92ESOshHIAxnA');
  expect(traceIdOf(requestId ?? '')).toBe(TRACE_ID);
  expect(requestIdOfTrace(`01-${TRACE_ID}-b7ad6b7169203331-01-more`)).toBe(requestId);
  expect(traceIdOf(newId('req'))).toMatch(/^[0-9a-f]{32}$/);
});

test.each([
  '',
  'x',
  `00-${TRACE_ID}-b7ad6b7169203331`,
  `00-${'0'.repeat(32)}-b7ad6b7169203331-01`,
  `00-${TRACE_ID}-${'0'.repeat(16)}-01`,
  `00-${TRACE_ID.toUpperCase()}-b7ad6b7169203331-01`,
  `ff-${TRACE_ID}-b7ad6b7169203331-01`,
  `00-${TRACE_ID}-b7ad6b7169203331-01-more`,
  `00-${TRACE_ID}-b7ad6b7169203331-01\n`,
])('%j is no trace', (header) => {
  expect(requestIdOfTrace(header)).toBeUndefined();
});

test.each(['req_test', 'req_', 'exe_CvdlGRbNQ92ESOshHIAxnA', ''])('%j is of no trace', (requestId) => {
  expect(traceIdOf(requestId)).toBeUndefined();
});
