declare module "swagger-ui-dist/swagger-ui-es-bundle.js" {
  interface Options {
    spec: object;
    dom_id: string;
    deepLinking: boolean;
    validatorUrl: null;
  }
  export default function SwaggerUI(options: Options): unknown;
}
