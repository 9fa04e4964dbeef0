/** The rules of one session: what it may ask for, and what is added to what it asks. */
import { type Failure, failure } from '../../shared/errors.ts';
import {
  canonicalHost,
  coversHost,
  DEFAULT_EGRESS_PORTS,
  type EgressRule,
  type EgressTarget,
  type InjectedHeader,
  matchesRule,
  type Network,
  parseEgressRule,
  REFUSED_EGRESS_PORT,
} from '../../shared/network.ts';
import type { EgressSettings } from './settings.ts';

interface NamedRule {
  readonly rule: EgressRule;
  readonly text: string;
}

export interface EgressPolicy {
  readonly rules: readonly NamedRule[];
  readonly inject: readonly InjectedHeader[];
}

export type PolicyDecision =
  | { readonly allowed: true; readonly rule: string }
  | { readonly allowed: false; readonly reason: 'address_literal' | 'port' | 'not_listed' };

export function compilePolicy({ allow, inject }: Network): EgressPolicy {
  const rules = allow.flatMap((text) => {
    const rule = parseEgressRule(text);
    return rule === undefined ? [] : [{ rule, text }];
  });
  // Compared with the canonical host of a request.
  return {
    rules,
    inject: inject.map((header) => ({ ...header, host: canonicalHost(header.host)?.host ?? '' })),
  };
}

export function decide({ rules }: EgressPolicy, target: EgressTarget): PolicyDecision {
  const found = rules.find(({ rule }) => matchesRule(rule, target));
  // No rule can be written for it; one for any port must not become one.
  if (target.port === REFUSED_EGRESS_PORT) return { allowed: false, reason: 'port' };
  if (found !== undefined) return { allowed: true, rule: found.text };
  if (rules.some(({ rule }) => coversHost(rule, target))) return { allowed: false, reason: 'port' };
  return { allowed: false, reason: target.kind === 'address' ? 'address_literal' : 'not_listed' };
}

export function injectedHeaders({ inject }: EgressPolicy, host: string): readonly InjectedHeader[] {
  return inject.filter((header) => header.host === host);
}

/** Why a sandbox with this network may not be made here; undefined when it may. */
export function refusedByHost(network: Network, settings: EgressSettings): Failure | undefined {
  if (!settings.isAllowed) return failure('egress_refused', 'this host gives sessions no way out');
  const caps = settings.allow;
  if (caps === null) return undefined;
  const beyond = network.allow.find((text) => {
    const rule = parseEgressRule(text);
    return rule === undefined || !portsOf(rule).every((port) => caps.some((cap) => covers(cap, rule, port)));
  });
  return beyond === undefined
    ? undefined
    : failure('egress_refused', `network.allow: ${beyond} is beyond what this host allows`);
}

function portsOf(rule: EgressRule): readonly number[] {
  return rule.port === null ? DEFAULT_EGRESS_PORTS : [rule.port];
}

/** Whether everything that `rule` opens on this port is open by `cap`. */
function covers(cap: EgressRule, rule: EgressRule, port: number): boolean {
  if (!portsOf(cap).includes(port)) return false;
  switch (rule.kind) {
    case 'any':
      return cap.kind === 'any';
    case 'below':
      return cap.kind === 'any' || (cap.kind === 'below' && `.${rule.host}`.endsWith(`.${cap.host}`));
    case 'name':
    case 'address':
      return coversHost(cap, { kind: rule.kind, host: rule.host });
  }
}
