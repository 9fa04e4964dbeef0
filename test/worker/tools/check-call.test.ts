import { env } from 'cloudflare:workers';
import { describe, expect, test } from 'vitest';
import { utf8 } from '../../../shared/encoding.ts';
import { MAX_ARGUMENTS_BYTES } from '../../../shared/limits.ts';
import { configurationOf } from '../../../worker/configuration.ts';
import { Refusal } from '../../../worker/middleware/refusal.ts';
import { type CallContext, checkCall } from '../../../worker/tools/check-call.ts';

const context: CallContext = {
  principal: {
    kind: 'tenant',
    tenant: 'a',
    subject: 'b',
    client: 'c',
    scopes: new Set(['tools:python', 'tools:file']),
    toolPolicy: null,
    tokenId: 't',
    boundTo: null,
    issuedAtMs: 0,
    apiKeyId: null,
    expiresAtMs: 0,
  },
  configuration: await configurationOf(env),
};

const EMPTY_CODE_BYTES = utf8(JSON.stringify({ code: '' })).length;

function check(tool_name: string, given: Record<string, unknown>): string {
  try {
    checkCall(context, { tool_name, arguments: given });
    return 'accepted';
  } catch (error: unknown) {
    if (error instanceof Refusal) return `${error.failure.code} ${error.failure.violations?.[0]?.path}`;
    throw error;
  }
}

describe('arguments', () => {
  test('that fill what a command to the host may carry are accepted', () => {
    const code = 'a'.repeat(MAX_ARGUMENTS_BYTES - EMPTY_CODE_BYTES);
    expect(check('python', { code })).toBe('accepted');
  });

  test.each([
    ['one byte more than that', 'a'.repeat(MAX_ARGUMENTS_BYTES - EMPTY_CODE_BYTES + 1)],
    ['lines, each of whose ends takes two bytes in JSON', '\n'.repeat(600_000)],
    ['characters of two bytes in UTF-8', 'é'.repeat(600_000)],
    ['characters that JSON must escape with six bytes', '\u0001'.repeat(200_000)],
  ])('of %s are refused with their path before anything else sees them', (_name, code) => {
    expect(check('python', { code })).toBe('payload_too_large body.arguments');
  });

  test('are measured with the defaults that the schema fills in', () => {
    const given = { operation: 'write', path: 'a' };
    const bare = utf8(JSON.stringify({ ...given, content: '' })).length;
    const content = 'a'.repeat(MAX_ARGUMENTS_BYTES - bare);
    expect(check('file', { ...given, content })).toBe('payload_too_large body.arguments');
  });
});
