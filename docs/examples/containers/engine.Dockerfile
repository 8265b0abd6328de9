# vLLM for the router on a machine without a GPU, from the same script that sets it up beside memroute:
#
#   docker build -f docs/examples/containers/engine.Dockerfile -t memroute-engine .
#
# With an NVIDIA GPU take vLLM's own image instead (compose.yaml says where), with the same arguments less
# --enforce-eager and --block-size.
FROM python:3.11-slim

RUN apt-get update && apt-get install -y --no-install-recommends libnuma1 libgomp1 && rm -rf /var/lib/apt/lists/*
WORKDIR /app
COPY scripts/setup_engine scripts/setup_engine
ARG MEMROUTE_TORCH_INDEX=
RUN MEMROUTE_ENGINE_ENV=/opt/engine scripts/setup_engine && rm -rf /root/.cache

RUN useradd --uid 10001 --create-home engine
USER engine
ENV PATH=/opt/engine/bin:$PATH HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 VLLM_NO_USAGE_STATS=1 VLLM_CPU_KVCACHE_SPACE=1
EXPOSE 8000
ENTRYPOINT ["python", "-m", "vllm.entrypoints.openai.api_server"]
