/** Name of the catalogue of the tools for all tenants, and of the source that they are of in the others: no tenant and no source has it. */
export const SHARED = '*';
