# The service: sessions, proxy, memories, heads. Build it at the root of the repository:
#
#   docker build -f docs/examples/containers/app.Dockerfile -t memroute .
#   docker build --build-arg MEMROUTE_TORCH_INDEX=... ...      where pip would take a CUDA build of torch, see README
#
# The run is mounted at /runs; keys are read from /run/secrets/memroute_keys.
FROM python:3.11-slim

RUN apt-get update && apt-get install -y --no-install-recommends git && rm -rf /var/lib/apt/lists/*
WORKDIR /app
COPY . .
ARG MEMROUTE_TORCH_INDEX=
# One layer, so that nothing is kept twice. The folder is a plain copy: its history stays outside (.dockerignore).
RUN scripts/setup && rm -rf /root/.cache

RUN useradd --uid 10001 --create-home memroute && mkdir /runs && chown memroute /runs
USER memroute
ENV PATH=/app/.venv/bin:$PATH MEMROUTE_CACHE=/home/memroute/cache
VOLUME /runs
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/healthz', timeout=2)"]
ENTRYPOINT ["memroute", "serve"]
CMD ["configs/embedded.yaml", "--runs-dir", "/runs", "--host", "0.0.0.0", "--port", "8080"]
