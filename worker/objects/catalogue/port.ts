/** What others may ask of a tenant's catalogue. */
import type { Outcome } from '../../../shared/errors.ts';
import type { DefinedTool, RegisteredMany, RegisteredTool } from '../../../shared/registered-tool.ts';
import type { ToolPolicy } from '../../../shared/tool-policy.ts';
import type { SourceState, ToolSource } from '../../../shared/tool-source.ts';
import type { EmbeddingUse } from '../../embeddings/use.ts';
import type { ToolCaller } from '../../tools/policy.ts';

/** A definition without its secrets; `credentials` are sealed, undefined where they stay as they are. */
export interface PutTool {
  tool: DefinedTool;
  credentials: { sealed: string; names: string[] } | null | undefined;
  /** Why it cannot be called. */
  fault: string | null;
}

/** A call needs the credentials too, and they leave the object for nothing else. */
export interface StoredTool {
  tool: RegisteredTool;
  sealedCredentials: string | null;
}

export interface ListedTools {
  tools: RegisteredTool[];
  /** Key of the last one, where more may follow. */
  next: string | null;
}

export interface ToolFilter {
  scopes: string[];
  toolPolicy: ToolPolicy | null;
  category?: string | undefined;
  /** Only what this kind of caller may call; by default a direct one. */
  caller?: ToolCaller | 'any';
}

/** The name itself, or what it is called in the lists of model APIs or of MCP. */
export type NameKind = 'name' | 'function_name' | 'mcp_name';

/** A name of a tool, and what kind of name it is. */
export interface ToolKey {
  name: string;
  kind: NameKind;
}

export interface FindTools {
  keys: ToolKey[];
  /** What whoever asks has found before, and the revision that this was of; null where it has nothing. */
  known: ToolKey[];
  revision: string | null;
}

/** In the order of the keys; null where there is none. */
export interface FoundByName {
  /** Another one after each change of any tool. */
  revision: string;
  tools: (StoredTool | null)[];
  /** What is known, as it is now; null where it is as it was. */
  changed: (StoredTool | null)[] | null;
}

export interface SearchHit {
  name: string;
  score: number;
  /** Null for a built-in tool. */
  tool: RegisteredTool | null;
}

export interface FoundTools {
  /** Best first. */
  hits: SearchHit[];
  embeddings: EmbeddingUse;
}

export interface PutSource {
  source: ToolSource;
  /** Scopes of who makes it. */
  rights: string[];
  /** Sealed. */
  secrets: string | null;
  mode: 'create' | 'replace';
}

export interface StoredSource {
  revision: number;
  source: ToolSource;
  rights: string[];
  secrets: string | null;
}

/** What came of asking a source. */
export interface SourceReport {
  /** Of the definition that was asked by. */
  revision: number;
  state: Partial<SourceState>;
  /** All that it has now; absent where they are as before. */
  tools?: PutTool[];
}

export interface SharedCatalogue {
  revision: string;
  /** Null where the revision is the one that was known. */
  tools: PutTool[] | null;
}

export interface CataloguePort {
  /** `create`: a name that exists takes a new version only. `replace`: whatever was there. */
  put(
    input: PutTool & { mode: 'create' | 'replace' },
  ): Promise<Outcome<{ tool: RegisteredTool; isNew: boolean }>>;
  putMany(inputs: PutTool[]): Promise<Outcome<RegisteredMany['tools']>>;
  get(name: string, version: string | null): Promise<Outcome<RegisteredTool>>;
  remove(name: string): Promise<Outcome<null>>;
  /** Those of the names that there are, whoever may use them. */
  find(input: FindTools): Promise<Outcome<FoundByName>>;
  list(
    input: ToolFilter & { order: NameKind; after: string | null; limit: number; maxCharacters: number },
  ): Promise<Outcome<ListedTools>>;
  /** All by name, also what is broken or disabled, for whose catalogue it is. */
  listAll(input: {
    after: string | null;
    limit: number;
    maxCharacters: number;
  }): Promise<Outcome<ListedTools>>;
  search(input: ToolFilter & { query: string; limit: number }): Promise<Outcome<FoundTools>>;
  putSource(input: PutSource): Promise<Outcome<{ source: ToolSource; isNew: boolean }>>;
  getSource(name: string): Promise<Outcome<StoredSource>>;
  listSources(): Promise<Outcome<ToolSource[]>>;
  /** With all its tools. */
  removeSource(name: string): Promise<Outcome<null>>;
  reportSource(name: string, report: SourceReport): Promise<Outcome<null>>;
  /** Of the catalogue of the operator's tools for all: what the catalogues of tenants copy. */
  shared(knownRevision: string): Promise<Outcome<SharedCatalogue>>;
}
