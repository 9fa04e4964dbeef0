/** The way out of a session: closed, or open to what a list of rules names. */
import * as z from 'zod';
import { sha256Hex } from './digest.ts';

export const MAX_ALLOW_RULES = 64;
export const MAX_INJECTED_HEADERS = 16;
/** Ports of a rule that names none. */
export const DEFAULT_EGRESS_PORTS: readonly number[] = [80, 443];
/** Mail between servers: no session has business there, and one that does costs its host its name. */
export const REFUSED_EGRESS_PORT = 25;

/** `host`, `*.host` (names below it, not itself), `*`, or an address; each with `:port` or for ports 80 and 443. */
export interface EgressRule {
  readonly kind: 'name' | 'below' | 'any' | 'address';
  /** Lower case, in ASCII, without a dot at the end; an IPv6 address without brackets. Empty for `any`. */
  readonly host: string;
  readonly port: number | null;
}

const RULE = /^(\[[0-9a-fA-F:.]+\]|[^\s:/?#@%\\[\]]+)(?::([1-9][0-9]{0,4}))?$/;
const LABEL = /^(?!-)[a-z0-9_-]{1,63}(?<!-)$/;
const MAX_NAME_CHARS = 253;

/** Undefined for what is no rule. */
export function parseEgressRule(text: string): EgressRule | undefined {
  const match = RULE.exec(text);
  if (match === null) return undefined;
  const [, hostText = '', portText] = match;
  const port = portText === undefined ? null : Number(portText);
  if (port !== null && (port > 65_535 || port === REFUSED_EGRESS_PORT)) return undefined;
  if (hostText === '*') return { kind: 'any', host: '', port };
  if (hostText.startsWith('*.')) {
    const host = canonicalHost(hostText.slice(2));
    // What is below a name of one label is nearly everything.
    return host?.kind === 'name' && host.host.includes('.')
      ? { kind: 'below', host: host.host, port }
      : undefined;
  }
  const host = canonicalHost(hostText);
  return host === undefined ? undefined : { ...host, port };
}

/**
 * The one spelling of a host. Undefined for what is none, and for an address in any spelling but the usual one: `0x7f.1`
 * and `127.1` are addresses to some programs and names to others.
 */
export function canonicalHost(text: string): { kind: 'name' | 'address'; host: string } | undefined {
  const withoutDot = text.endsWith('.') ? text.slice(0, -1) : text;
  const parsed = URL.parse(`http://${withoutDot}/`);
  if (parsed === null || withoutDot === '' || /[\s/?#@%\\]/.test(withoutDot)) return undefined;
  const { hostname } = parsed;
  if (parsed.port !== '' || parsed.username !== '' || parsed.pathname !== '/') return undefined;
  if (hostname.startsWith('[')) return { kind: 'address', host: hostname.slice(1, -1) };
  if (/^\d+\.\d+\.\d+\.\d+$/.test(hostname)) {
    return hostname === text ? { kind: 'address', host: hostname } : undefined;
  }
  const labels = hostname.split('.');
  if (hostname.length > MAX_NAME_CHARS || !labels.every((label) => LABEL.test(label))) return undefined;
  return { kind: 'name', host: hostname };
}

export interface EgressTarget {
  readonly kind: 'name' | 'address';
  readonly host: string;
  readonly port: number;
}

export function matchesRule(rule: EgressRule, target: EgressTarget): boolean {
  const isPort = rule.port === null ? DEFAULT_EGRESS_PORTS.includes(target.port) : rule.port === target.port;
  return isPort && coversHost(rule, target);
}

/** An address is open only where it is written out: no rule for names means one. */
export function coversHost(rule: EgressRule, host: Pick<EgressTarget, 'kind' | 'host'>): boolean {
  switch (rule.kind) {
    case 'any':
      return host.kind === 'name';
    case 'below':
      return host.kind === 'name' && host.host.endsWith(`.${rule.host}`);
    case 'name':
    case 'address':
      return rule.kind === host.kind && rule.host === host.host;
  }
}

/** A rule as its text. */
export const EgressRuleTextSchema = z
  .string()
  .max(300)
  .refine((text) => parseEgressRule(text) !== undefined, {
    message: 'a host, *.host or address, with or without :port; never port 25',
  });

const HeaderNameSchema = z
  .string()
  .regex(/^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}$/)
  .refine((name) => !FRAMING_HEADERS.has(name.toLowerCase()), {
    message: 'a header that does not frame the message',
  });

const FRAMING_HEADERS = new Set([
  'connection',
  'content-length',
  'expect',
  'host',
  'keep-alive',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

/** A header that the host adds to requests for one host, so that its value never enters the sandbox. */
const InjectedHeaderSchema = z.strictObject({
  /** One name, no wildcard; `allow` has to cover it. */
  host: z
    .string()
    .max(253)
    .refine((text) => canonicalHost(text)?.kind === 'name', { message: 'a host name' }),
  header: HeaderNameSchema,
  /** The whole value of the header. Never shown again. Shorter ones would be found in any text by chance. */
  secret: z.string().regex(/^[\x21-\x7e][\x20-\x7e]{6,8190}[\x21-\x7e]$/),
  /** Whether the host speaks TLS there although the sandbox says `http://`. */
  tls: z.boolean().default(true),
});

const AllowSchema = z.array(EgressRuleTextSchema).min(1).max(MAX_ALLOW_RULES);

/** `network` of a new session. Without it there is no way out. */
export const NetworkSchema = z
  .strictObject({
    allow: AllowSchema,
    inject: z.array(InjectedHeaderSchema).max(MAX_INJECTED_HEADERS).default([]),
  })
  .refine(({ allow, inject }) => inject.every((header) => isCovered(header.host, allow)), {
    path: ['inject'],
    message: 'hosts that a rule of `allow` covers',
  });
export type Network = z.infer<typeof NetworkSchema>;
export type InjectedHeader = Network['inject'][number];

function isCovered(hostText: string, allow: readonly string[]): boolean {
  const host = canonicalHost(hostText);
  if (host === undefined) return false;
  return allow.some((text) => {
    const rule = parseEgressRule(text);
    return rule !== undefined && coversHost(rule, host);
  });
}

/** What a session shows of its network: everything but the secrets. */
export const NetworkViewSchema = z.object({
  allow: z.array(z.string()),
  inject: z.array(z.object({ host: z.string(), header: z.string(), tls: z.boolean() })),
});
export type NetworkView = z.infer<typeof NetworkViewSchema>;

export function networkView({ allow, inject }: Readonly<NetworkView>): NetworkView {
  return { allow: [...allow], inject: inject.map(({ host, header, tls }) => ({ host, header, tls })) };
}

/** The `egress` claim of a grant: `none`, or the digest of what the session may reach, secrets left out. */
export async function egressClaim(network: Readonly<NetworkView> | null): Promise<string> {
  return network === null ? 'none' : sha256Hex(JSON.stringify(networkView(network)));
}
