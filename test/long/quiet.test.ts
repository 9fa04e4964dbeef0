/** Ten minutes without a word, by each way: more than any idle limit on the way allows. */
import { describe, test } from 'vitest';
import {
  isAnsweredOverMcp,
  isHeardOnSocket,
  isStreamed,
  linkWorksAtOnceAfter,
  staysWholeForItsViewer,
} from '../e2e/quiet.ts';
import { useStack } from '../e2e/stack.ts';
import { STUCK_MS } from '../patience.ts';

const QUIET_MS = 600_000;
/** What idle limits on the way are set above. */
const MAX_SILENCE_MS = 30_000;
const stack = useStack();

describe.concurrent('R15 ten minutes without a word', { timeout: QUIET_MS + 240_000 }, () => {
  test('R15 are streamed', () => isStreamed(stack(), QUIET_MS, MAX_SILENCE_MS));
  test('R15 are heard on a socket', () => isHeardOnSocket(stack(), QUIET_MS, MAX_SILENCE_MS));
  test('R15 are answered over MCP', () => isAnsweredOverMcp(stack(), QUIET_MS));
  test('R15 of a viewer cost it nothing but what a gap says', () =>
    staysWholeForItsViewer(stack(), QUIET_MS));
  test('R15 of a session leave its link as it was', () => linkWorksAtOnceAfter(stack(), QUIET_MS, STUCK_MS));
});
