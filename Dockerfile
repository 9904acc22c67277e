# syntax=docker/dockerfile:1
# The server with its page, the drivers of all stores and OpenTelemetry, for a user without any rights.
#   docker build -t teal-agents .
#   docker run --read-only --tmpfs /tmp -v teal:/var/lib/teal -p 8000:8000 \
#     -e TA_AUTHORIZER=keys teal-agents
# Its root may be read-only: it writes to /var/lib/teal, and to /tmp.

FROM python:3.12-slim-bookworm AS build
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends make \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
# The page, with a Node.js of its own; then the package, and what the lock files name for it.
RUN make page \
    && .venv/bin/uv build --wheel --no-build-isolation --python .venv/bin/python --out-dir /dist \
    && .venv/bin/uv venv --python /usr/local/bin/python3 /opt/teal \
    && .venv/bin/uv pip install --compile-bytecode --python /opt/teal/bin/python \
        --constraints requirements-extras.lock "$(ls /dist/*.whl)[postgres,redis,dynamodb,otel]"

FROM python:3.12-slim-bookworm
RUN useradd --uid 10001 --user-group --home-dir /var/lib/teal --create-home teal \
    && chmod 700 /var/lib/teal
COPY --from=build /opt/teal /opt/teal
ENV PATH=/opt/teal/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    TA_HOST=0.0.0.0 \
    TA_PORT=8000 \
    TA_STORE=sqlite:////var/lib/teal/teal.sqlite \
    TA_KEYS_FILE=/var/lib/teal/keys.json \
    TA_LOG_FORMAT=json
USER 10001:10001
WORKDIR /var/lib/teal
VOLUME ["/var/lib/teal"]
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(f'http://127.0.0.1:{os.environ[\"TA_PORT\"]}/health/ready', timeout=4)"]
# On SIGTERM it hands its runs over and tells its readers where to go on.
STOPSIGNAL SIGTERM
ENTRYPOINT ["teal"]
CMD ["serve"]
