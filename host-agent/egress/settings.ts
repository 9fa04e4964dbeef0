/** What the operator of this host lets sessions reach, whatever their own rules say. */
import { isIP } from 'node:net';
import * as z from 'zod';
import { canonicalHost, type EgressRule, parseEgressRule } from '../../shared/network.ts';
import type { Lookup } from './resolve.ts';

export interface EgressSettings {
  /** False: a session that asks for a way out is refused. */
  readonly isAllowed: boolean;
  /** Rules of sessions must be covered by these; null: by nothing in particular. */
  readonly allow: readonly EgressRule[] | null;
  /**
   * Names that are not asked of the resolver, with their addresses. Those may be private ones: that is how a service of
   * the operator's own network is opened, by name, to sessions that name it in their rules.
   */
  readonly hosts: ReadonlyMap<string, readonly string[]>;
  /** Both ways, of one sandbox. */
  readonly maxBytes: number;
  /** Of all sandboxes together, so that what one of them holds is not what the host needs itself. */
  readonly maxConnections: number;
  /** Bytes a second, both ways together: of all sandboxes, and of one. */
  readonly hostRate: number;
  readonly sandboxRate: number;
  /** Asks for the addresses of every other name; the name servers of this machine, unless given. */
  readonly lookup?: Lookup;
  /** Certificates to trust upstream; those that Node.js trusts, unless given. */
  readonly certificateAuthorities?: readonly string[];
}

const DEFAULT_MAX_BYTES = 64 * 1024 ** 3;
const DEFAULT_MAX_CONNECTIONS = 2_048;
const DEFAULT_HOST_RATE = 128 * 1024 ** 2;
const DEFAULT_SANDBOX_RATE = 32 * 1024 ** 2;

export const DEFAULT_EGRESS_SETTINGS: EgressSettings = {
  isAllowed: true,
  allow: null,
  hosts: new Map(),
  maxBytes: DEFAULT_MAX_BYTES,
  maxConnections: DEFAULT_MAX_CONNECTIONS,
  hostRate: DEFAULT_HOST_RATE,
  sandboxRate: DEFAULT_SANDBOX_RATE,
};

const RulesSchema = z.string().transform((text, context): readonly EgressRule[] =>
  words(text).flatMap((word) => {
    const rule = parseEgressRule(word);
    if (rule === undefined) context.addIssue(`not a rule of hosts: ${word}`);
    return rule ?? [];
  }),
);

/** `name=address` pairs, separated by commas; a name may come again for a further address. */
const HostsSchema = z.string().transform((text, context): ReadonlyMap<string, readonly string[]> => {
  const hosts = new Map<string, string[]>();
  for (const word of words(text)) {
    const [name = '', address = '', ...more] = word.split('=');
    const host = canonicalHost(name);
    if (host === undefined || isIP(address) === 0 || address.includes('%') || more.length > 0) {
      context.addIssue(`name=address was expected, not ${word}`);
      continue;
    }
    hosts.set(host.host, [...(hosts.get(host.host) ?? []), address]);
  }
  return hosts;
});

function words(text: string): string[] {
  return text.split(',').flatMap((word) => word.trim() || []);
}

/** Variables of the agent's environment. */
export const EGRESS_ENVIRONMENT = {
  SANDGATE_EGRESS: z.enum(['allow-list', 'none']).default('allow-list'),
  SANDGATE_EGRESS_ALLOW: RulesSchema.optional(),
  SANDGATE_EGRESS_HOSTS: HostsSchema.default(new Map()),
  SANDGATE_EGRESS_MAX_CONNECTIONS: z.coerce.number().int().min(1).default(DEFAULT_MAX_CONNECTIONS),
  SANDGATE_EGRESS_HOST_BYTES_PER_S: z.coerce.number().int().min(1).default(DEFAULT_HOST_RATE),
  SANDGATE_EGRESS_BYTES_PER_S: z.coerce.number().int().min(1).default(DEFAULT_SANDBOX_RATE),
  SANDGATE_EGRESS_MAX_BYTES: z.coerce.number().int().min(1).default(DEFAULT_MAX_BYTES),
} as const;

const EgressEnvironmentSchema = z.object(EGRESS_ENVIRONMENT);

export function egressSettings(values: z.infer<typeof EgressEnvironmentSchema>): EgressSettings {
  return {
    isAllowed: values.SANDGATE_EGRESS === 'allow-list',
    allow: values.SANDGATE_EGRESS_ALLOW ?? null,
    hosts: values.SANDGATE_EGRESS_HOSTS,
    maxBytes: values.SANDGATE_EGRESS_MAX_BYTES,
    maxConnections: values.SANDGATE_EGRESS_MAX_CONNECTIONS,
    hostRate: values.SANDGATE_EGRESS_HOST_BYTES_PER_S,
    sandboxRate: values.SANDGATE_EGRESS_BYTES_PER_S,
  };
}
