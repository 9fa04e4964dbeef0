/** What is to be done for a call of a program: planned for whoever began the program, with what they were allowed then. */
import type { Configuration } from '../../../configuration.ts';
import type { Env } from '../../../env.ts';
import type { TenantPrincipal } from '../../../identity/principal.ts';
import { type InnerCallPlan, planInnerCall } from '../../../programs/inner-call.ts';
import type { SessionRow } from '../rows/session-row.ts';
import type { CallRow, ProgramRow } from './store.ts';

export class Planning {
  readonly #env: Env;
  readonly #configuration: Configuration;
  readonly #row: SessionRow;

  constructor({ env, configuration, row }: { env: Env; configuration: Configuration; row: SessionRow }) {
    this.#env = env;
    this.#configuration = configuration;
    this.#row = row;
  }

  /** Whoever began the program, as the tenant's bars know them. */
  ownerOf({ facts: { tokenId, issuedAtMs, apiKeyId } }: ProgramRow) {
    const { tenant, subject } = this.#row.record.facts;
    return { tenant, subject, tokenId, issuedAtMs, apiKeyId };
  }

  planOf(program: ProgramRow, row: CallRow): Promise<InnerCallPlan> {
    const { facts } = program;
    const principal: TenantPrincipal = {
      ...this.ownerOf(program),
      kind: 'tenant',
      client: facts.client,
      scopes: new Set(facts.scopes),
      toolPolicy: facts.toolPolicy,
      boundTo: null,
      expiresAtMs: Number.POSITIVE_INFINITY,
    };
    const context = {
      env: this.#env,
      configuration: this.#configuration,
      principal,
      receivedMs: row.createdAtMs,
    };
    const approved = row.approval?.given === true ? row.approval.tool.digest : null;
    const call = { name: row.name, arguments: row.arguments ?? '', approved };
    return planInnerCall(context, call, facts.tools);
  }
}
