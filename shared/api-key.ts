/**
 * API keys: `sgk_<tenant>~<id>~<256 random bits><tag>`. The tag says that this edge made it, so a key that somebody
 * invented wakes no object. A key is no access token: it is exchanged for one that lives for minutes.
 */
import * as z from 'zod';
import { toBase64Url, utf8 } from './encoding.ts';
import { constantTimeEqual, randomHandle } from './ids.ts';
import { SubjectSchema } from './tenant.ts';
import { ToolPolicySchema } from './tool-policy.ts';

export const ApiKeyIdSchema = z.string().regex(/^key_[A-Za-z0-9_-]{22}$/);
const KEY =
  /^sgk_([A-Za-z0-9][A-Za-z0-9._-]{0,63})~([A-Za-z0-9_-]{22})~([A-Za-z0-9_-]{43})([A-Za-z0-9_-]{22})$/;
const SECRET_BYTES = 32;
const TAG_BYTES = 16;

export const TOKEN_LIFETIME_S = 900;
export const MAX_ISSUED_TOKEN_LIFETIME_S = 3_600;
export const ACCESS_TOKEN_TYPE = 'urn:ietf:params:oauth:token-type:access_token';

const ScopeNameSchema = z.string().regex(/^[\x21\x23-\x5b\x5d-\x7e]{1,128}$/);

export const CreateApiKeySchema = z.strictObject({
  subject: SubjectSchema.describe('On whose behalf the tokens of the key act.'),
  scopes: z.array(ScopeNameSchema).min(1).max(32).describe('What tokens of the key may hold at most.'),
  tool_policy: ToolPolicySchema.nullable().default(null).describe('To what calls of its tokens are held.'),
  name: z.string().max(128).default(''),
  expires_at: z.iso.datetime().nullable().default(null),
});

export const ApiKeySchema = z.object({
  key_id: ApiKeyIdSchema,
  subject: z.string(),
  scopes: z.array(z.string()),
  tool_policy: ToolPolicySchema.nullable(),
  name: z.string(),
  created_at: z.iso.datetime(),
  expires_at: z.iso.datetime().nullable(),
  revoked_at: z.iso.datetime().nullable(),
  last_used_on: z.iso.date().nullable().describe('Day of the last exchange, in UTC.'),
});
export type ApiKey = z.infer<typeof ApiKeySchema>;

export const NewApiKeySchema = ApiKeySchema.extend({ api_key: z.string() });

export const ExchangeSchema = z.strictObject({
  api_key: z.string().max(8_192),
  scope: z.string().max(2_048).optional().describe('Scopes, apart by spaces; without it, all of the key.'),
  tool_policy: ToolPolicySchema.optional().describe('The token is held to it and to that of the key.'),
  lifetime_s: z.int().min(60).max(MAX_ISSUED_TOKEN_LIFETIME_S).default(TOKEN_LIFETIME_S),
});

/** As an answer of RFC 8693. */
export const IssuedTokenSchema = z.object({
  access_token: z.string(),
  issued_token_type: z.literal(ACCESS_TOKEN_TYPE),
  token_type: z.literal('Bearer'),
  expires_in: z.int(),
  scope: z.string(),
  tool_policy: ToolPolicySchema.optional().describe('To what its calls are held.'),
});

export async function newApiKey(
  tagKey: CryptoKey,
  tenant: string,
): Promise<{ keyId: string; apiKey: string }> {
  const handle = randomHandle();
  const secret = toBase64Url(crypto.getRandomValues(new Uint8Array(SECRET_BYTES)));
  const tag = await tagOf(tagKey, { tenant, handle, secret });
  return { keyId: `key_${handle}`, apiKey: `sgk_${tenant}~${handle}~${secret}${tag}` };
}

/** Whose key it is, if this edge made it. */
export async function readApiKey(
  tagKey: CryptoKey,
  apiKey: string,
): Promise<{ tenant: string; keyId: string } | undefined> {
  const [, tenant, handle, secret, tag] = KEY.exec(apiKey) ?? [];
  if (tenant === undefined || handle === undefined || secret === undefined || tag === undefined)
    return undefined;
  if (!constantTimeEqual(await tagOf(tagKey, { tenant, handle, secret }), tag)) return undefined;
  return { tenant, keyId: `key_${handle}` };
}

async function tagOf(
  tagKey: CryptoKey,
  { tenant, handle, secret }: { tenant: string; handle: string; secret: string },
): Promise<string> {
  const mac = await crypto.subtle.sign('HMAC', tagKey, utf8(`api-key\n${tenant}\n${handle}\n${secret}`));
  return toBase64Url(new Uint8Array(mac).subarray(0, TAG_BYTES));
}
