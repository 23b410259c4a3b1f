# The image of `mempiler`: every command, the HTTP service by default. No key, token or password is in it.
#   docker build -t mempiler .
#   docker build -t mempiler --build-arg EXTRAS="postgres mcp models" .     # with further extras
#   docker run --rm mempiler list

FROM python:3.11-slim AS build
WORKDIR /source
ARG EXTRAS="postgres mcp"
# What is needed changes seldom, the sources often: a change of these alone installs nothing anew.
RUN python -m venv /venv
COPY constraints.txt pyproject.toml README.md LICENSE ./
RUN /venv/bin/pip install --no-cache-dir -c constraints.txt setuptools \
 && /venv/bin/python -c "import os, tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
extras = [r for extra in os.environ['EXTRAS'].split() for r in p['optional-dependencies'][extra]]; \
print(*p['dependencies'], *extras, sep='\n')" > needed.txt \
 && /venv/bin/pip install --no-cache-dir -c constraints.txt -r needed.txt
COPY . .
RUN /venv/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.11-slim
RUN useradd --system --uid 10001 --create-home --home-dir /data mempiler
COPY --from=build /venv /venv
ENV PATH=/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    MEMPILER_HOME=/data \
    DSPY_CACHEDIR=/data/cache \
    LITELLM_LOCAL_MODEL_COST_MAP=True \
    MLFLOW_DISABLE_TELEMETRY=true \
    MEMPILER_HOST=0.0.0.0 \
    MEMPILER_PORT=8000
USER mempiler
WORKDIR /data
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s --retries=4 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
ENTRYPOINT ["mempiler"]
CMD ["serve"]
