/** Input for a program: bytes as they are, or text in JSON that also says whether more comes. */
import * as z from 'zod';
import { fromBase64, utf8 } from '../../shared/encoding.ts';
import { failure } from '../../shared/errors.ts';
import {
  BYTES_MEDIA_TYPE,
  invalid,
  JSON_MEDIA_TYPE,
  parseBody,
  type RequestBody,
} from '../middleware/body.ts';
import { Refusal } from '../middleware/refusal.ts';

const StdinSchema = z.strictObject({
  data: z.string(),
  encoding: z.enum(['utf-8', 'base64']).default('utf-8'),
  eof: z.boolean().default(false),
});

export const StdinQuerySchema = z.strictObject({
  eof: z.enum(['true', 'false']).default('false').describe('Close the input after these bytes.'),
});

export interface ProgramInput {
  bytes: Uint8Array;
  eof: boolean;
}

/** Base64 in JSON is a third longer than the bytes, and the envelope around it small. */
export function rawStdin(maxBytes: number) {
  return {
    mediaTypes: [BYTES_MEDIA_TYPE, JSON_MEDIA_TYPE],
    maxBytes: Math.ceil(maxBytes * (4 / 3)) + 1_024,
  };
}

export function stdinOf(
  raw: RequestBody,
  query: z.infer<typeof StdinQuerySchema>,
  maxBytes: number,
): ProgramInput {
  const { bytes, eof } = inputOf(raw);
  if (bytes.length <= maxBytes) return { bytes, eof: eof || query.eof === 'true' };
  throw new Refusal(failure('payload_too_large', `at most ${maxBytes} bytes of input at once`));
}

function inputOf(raw: RequestBody): ProgramInput {
  if (raw.mediaType === BYTES_MEDIA_TYPE) return { bytes: raw.bytes, eof: false };
  const { data, encoding, eof } = parseBody(raw.bytes, StdinSchema);
  const bytes = encoding === 'utf-8' ? utf8(data) : fromBase64(data);
  if (bytes === undefined) throw invalid([{ path: 'body.data', expected: 'canonical base64 with padding' }]);
  return { bytes, eof };
}
